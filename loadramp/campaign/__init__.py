"""The phases before a launch, and the scorecard: go or no go?"""

from loadramp.registry import Feature

FEATURE = Feature(
    tables={"campaign": "loadramp.campaign.table:bind_campaign"},
    commands="loadramp.campaign.commands:commands",
    previews={"campaign": "loadramp.campaign.preview:campaign_parts"},
    directories={"campaign.json": "loadramp.campaign.commands:again"},
)

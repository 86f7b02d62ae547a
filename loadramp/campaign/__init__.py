"""The phases before a launch, and the scorecard: go or no go?"""

from loadramp.plan.campaign import bind_campaign
from loadramp.registry import Feature

FEATURE = Feature(
    tables={"campaign": bind_campaign},
    commands="loadramp.commands.campaigns:commands",
    previews={"campaign": "loadramp.jobs.campaign_preview:campaign_parts"},
    directories={"campaign.json": "loadramp.commands.campaigns:again"},
)

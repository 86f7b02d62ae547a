"""What the body of a reply says: events, quirks of vendors, token counts, outcome. Pure."""

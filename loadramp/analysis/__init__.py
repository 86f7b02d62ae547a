"""What the records mean. Pure: records in, numbers with their uncertainty out."""

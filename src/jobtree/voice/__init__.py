"""What both bodies say: events, how promises end, who is warned, and the signature below a record."""

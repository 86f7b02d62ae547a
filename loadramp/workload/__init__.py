"""What is sent and when. Pure: randomness comes in as an ``rng``, files as text, time as numbers."""

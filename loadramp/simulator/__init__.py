"""A vLLM-shaped server to practise on."""

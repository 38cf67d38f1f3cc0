"""Builds data/factbook: a small multi-hop question-answering world out of the World Factbook."""

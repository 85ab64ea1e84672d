"""The program that runs on a node: reads what the node is, and keeps its ledger. Stdlib only, Python 3.8."""

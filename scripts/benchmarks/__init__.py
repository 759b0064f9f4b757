"""The benches: what Pegasus costs, as ratios to floors measured in the same run (docs/performance.md).

One file a measure; floors, processes, provider and clients beside them; nothing here is imported by the product.
"""

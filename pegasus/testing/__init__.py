"""The public test kit: models and providers that do what a test wants, fake channels, a harness in virtual time.

Nothing here is imported by the product. Each file stands for itself: import what a test needs from its module.
"""

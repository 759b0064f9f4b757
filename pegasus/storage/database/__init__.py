"""The second engine: a database that several nodes share, behind the messages of the journal.

A *node* is one process of the agent. Nodes share nothing but the database. `tables` is what the engine needs of a database, one
transaction for each method; PostgreSQL implements it, and for simulations a database in memory. Nothing of this is imported where
the state is in files.
"""

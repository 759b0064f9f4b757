"""The second engine: a database that several nodes share, behind the messages of the journal.

A *node* is one process of the agent. Nodes share nothing but the database. `tables` is what the engine needs of a database, one
transaction for each method; PostgreSQL implements it, and for simulations a database in memory. Nothing of this is imported where
the state is in files.

    node_list   the nodes, as people and programs are shown them
    tables      what the engine needs of a database
"""

from pegasus.storage.database.node_list import NodeList

__all__ = ["NodeList"]

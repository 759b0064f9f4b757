"""The WebSocket gateway (subprotocol pegasus.v1): where programs, people and bridges talk to the agent.

The protocol's rules are pure (frames, render, delivery), the I/O around them thin (websocket, connection, server).
Clients are in pegasus.gateway.client, imported only by whoever dials.
"""

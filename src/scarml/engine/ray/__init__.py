"""The engine on Ray: the same nodes, each in a process of its own, on one machine or on many.

* `connection`: a Ray to run on, started quietly here or joined;
* `process`: the actor, one process, that hosts a node;
* `hosted_node`, `actor_links`: what is inside it;
* `remote_nodes`: the nodes as the driver reaches them;
* `engine`: runs one cluster to its end.
"""

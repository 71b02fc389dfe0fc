"""Max-min fair rates, and the load that rates over paths put on links. All pure."""

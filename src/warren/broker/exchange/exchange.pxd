# compiled: a start makes very many bindings

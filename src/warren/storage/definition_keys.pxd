# compiled: a start makes very many keys

"""The page of stage `report`: its inputs, its plots, its tables and its template."""

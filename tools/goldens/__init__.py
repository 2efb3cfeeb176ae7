"""Golden files: tiny random models of the reference libraries, stored with their outputs. Development only."""

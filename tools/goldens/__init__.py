"""Golden files: tiny random models of the reference libraries, stored with what they answer. Development
only.
"""

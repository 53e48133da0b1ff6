"""Exports: folders that other libraries load."""

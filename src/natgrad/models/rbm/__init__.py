"""Restricted Boltzmann machines: a visible and a hidden layer, with an energy for every pair of states."""

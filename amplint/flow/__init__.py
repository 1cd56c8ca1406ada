"""Analyses over the IR: what happens to scalers, optimizers and gradients along the paths of a program."""

"""Plots of curves as SVG and PNG."""

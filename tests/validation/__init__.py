"""Tests of the shipped validation modules; they need the environment of scripts/setup-test-validation.sh."""

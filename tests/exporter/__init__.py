"""Tests of the Dagster exporter: against made answers, bad servers, a real Dagster."""

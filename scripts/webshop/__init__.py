"""Builds data/webshop: a made-up catalogue in WebShop's schema, and goals to shop for."""

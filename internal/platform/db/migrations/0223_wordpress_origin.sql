-- +goose Up

-- The site that a clone was made of; empty: it is no clone.
ALTER TABLE wordpress_sites ADD COLUMN origin TEXT NOT NULL DEFAULT '';

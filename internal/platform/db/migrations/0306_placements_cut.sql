-- +goose Up

-- The node from which another one took the site because it couldn't reach it, though it ran; empty: none.
ALTER TABLE placements ADD COLUMN cut_from TEXT NOT NULL DEFAULT '';

-- +goose Up

-- Written by package node: nodes that an operator took off the list for good. They are refused if they return.
CREATE TABLE forgotten_nodes (
  id           TEXT PRIMARY KEY,
  forgotten_at BIGINT NOT NULL
);

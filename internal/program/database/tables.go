package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// quote returns a name as SQL has it.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// tablesOf returns the tables of a schema, and which of its names are views.
func (a *admin) tablesOf(ctx context.Context, schema string) (tables, views []string, err error) {
	rows, err := a.sql.QueryContext(ctx, `SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = ?
		ORDER BY table_name`, schema)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return nil, nil, err
		}
		if kind == "BASE TABLE" {
			tables = append(tables, name)
		} else {
			views = append(views, name)
		}
	}
	return tables, views, rows.Err()
}

// CheckTables returns a fault unless the scratch has all of these tables, and PutTables can put them into the owner's site's database of
// that name.
func (s *Scratch) CheckTables(ctx context.Context, owner account.OwnerID, id site.ID, called string, tables []string) error {
	a, done, err := s.server.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	have, _, err := a.tablesOf(ctx, s.schema)
	if err != nil {
		return fmt.Errorf("list tables: %w", away(err))
	}
	for _, t := range tables {
		if !slices.Contains(have, t) {
			return fault.New(fault.NotFound, "table_not_found", "The backup has no such table",
				fmt.Sprintf("it has %s", some(have))).Got(text.Clip(t, 64))
		}
	}
	if err := a.alone(ctx, s.schema, tables); err != nil {
		return err
	}
	_, _, err = s.target(ctx, a, owner, id, called, tables)
	return err
}

// target returns the schema that PutTables changes, and its tables.
func (s *Scratch) target(
	ctx context.Context, a *admin, owner account.OwnerID, id site.ID, called string, tables []string,
) (schema string, have []string, err error) {
	list, err := s.d.List(ctx, s.d.c.DB, owner, id)
	if err != nil {
		return "", nil, err
	}
	i := slices.IndexFunc(list, func(x Database) bool { return x.Name == called })
	switch {
	case i < 0:
		return "", nil, fault.New(fault.Conflict, "database_missing", "The site has no such database", "restore the whole database").Got(called)
	case list[i].Status != Active || list[i].server != s.server.name:
		return "", nil, fault.New(fault.Conflict, "database_not_active", "Tables of this database can't be replaced by themselves",
			"its status is "+string(list[i].Status)+"; restore the whole database")
	}
	schema = list[i].Schema
	have, views, err := a.tablesOf(ctx, schema)
	if err != nil {
		return "", nil, fmt.Errorf("list tables: %w", away(err))
	}
	for _, t := range tables {
		if slices.Contains(views, t) {
			return "", nil, fault.New(fault.Conflict, "table_not_alone", "A view can't be replaced by a table",
				"restore the whole database").Got(text.Clip(t, 64))
		}
	}
	return schema, have, a.alone(ctx, schema, tables)
}

// some lists the first names of a list in words.
func some(names []string) string {
	const most = 20
	switch n := len(names); {
	case n == 0:
		return "no tables"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

// alone returns a fault where one of a schema's tables hangs together with what isn't among them.
func (a *admin) alone(ctx context.Context, schema string, tables []string) error {
	refuse := func(what, details string) error {
		return fault.New(fault.Conflict, "table_not_alone", what, details)
	}
	rows, err := a.sql.QueryContext(ctx, `SELECT table_name, referenced_table_name FROM information_schema.referential_constraints
		WHERE constraint_schema = ?`, schema)
	if err != nil {
		return fmt.Errorf("list foreign keys: %w", away(err))
	}
	defer rows.Close()
	for rows.Next() {
		var from, to string
		if err := rows.Scan(&from, &to); err != nil {
			return fmt.Errorf("list foreign keys: %w", away(err))
		}
		if slices.Contains(tables, from) != slices.Contains(tables, to) {
			return refuse("Tables that refer to each other are only replaced together",
				fmt.Sprintf("%s refers to %s by a foreign key: name both", text.Clip(from, 64), text.Clip(to, 64)))
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list foreign keys: %w", away(err))
	}
	triggers, err := a.sql.QueryContext(ctx, `SELECT event_object_table FROM information_schema.triggers WHERE trigger_schema = ?`, schema)
	if err != nil {
		return fmt.Errorf("list triggers: %w", away(err))
	}
	defer triggers.Close()
	for triggers.Next() {
		var of string
		if err := triggers.Scan(&of); err != nil {
			return fmt.Errorf("list triggers: %w", away(err))
		}
		if slices.Contains(tables, of) {
			return refuse("A table with a trigger can't be replaced by itself", text.Clip(of, 64)+" has one: replace the whole database")
		}
	}
	return triggers.Err()
}

// PutTables puts tables of the scratch in the place of those of the owner's site's database of that name, all at one moment. What was
// there is dropped. It may be repeated with another scratch; the site's programs must not run meanwhile.
func (s *Scratch) PutTables(ctx context.Context, owner account.OwnerID, id site.ID, called string, tables []string) error {
	a, done, err := s.server.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	schema, have, err := s.target(ctx, a, owner, id, called, tables)
	if err != nil {
		return err
	}
	replaced, err := s.d.empty(ctx, s.server) // of its own, since names of foreign keys are a database's
	if err != nil {
		return err
	}
	defer replaced.Drop(context.WithoutCancel(ctx))
	var moves []string
	for _, t := range tables {
		if slices.Contains(have, t) {
			moves = append(moves, fmt.Sprintf("%s.%s TO %s.%s", quote(schema), quote(t), quote(replaced.schema), quote(t)))
		}
		moves = append(moves, fmt.Sprintf("%s.%s TO %s.%s", quote(s.schema), quote(t), quote(schema), quote(t)))
	}
	_, err = a.sql.ExecContext(ctx, "RENAME TABLE "+strings.Join(moves, ", "))
	var refused *mysql.MySQLError
	switch {
	case err == nil:
		return nil
	case locked(err):
		return fault.New(fault.Conflict, "table_locked", "A table is in use and can't be replaced", "try again later")
	case errors.As(err, &refused) && !ending(refused):
		return fault.New(fault.Conflict, "table_not_alone", "The tables can't be replaced by themselves",
			fmt.Sprintf("the server says %q; restore the whole database", text.Clip(refused.Message, 200)))
	}
	return fmt.Errorf("replace tables: %w", away(err))
}

package site

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/webhook/event"
)

// Var is an environment variable. A secret's Value is empty except for builds and the running site.
type Var struct {
	ID        string
	Key       string
	Value     string
	Secret    bool
	Target    []string // build, runtime; and production or preview if limited to one
	Branch    string   // pattern of the preview branches it applies to; empty: all
	CreatedAt db.Time
	UpdatedAt db.Time
}

// NewVar is a variable to set. A nil Secret means false, and a nil Target both targets.
type NewVar struct {
	Key    string
	Value  string
	Secret bool
	Target []string
	Branch string // as in Var
}

const (
	maxVars  = 1000
	maxValue = 32 << 10
)

var (
	keyPattern = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	targets    = []string{"build", "runtime"}
	scopes     = []string{"production", "preview"}
)

// Scope returns production or preview if the variable is limited to one, otherwise "".
func (v Var) Scope() string { return scopeOf(v.Target) }

func scopeOf(target []string) string {
	if last := target[len(target)-1]; slices.Contains(scopes, last) {
		return last
	}
	return ""
}

// slot identifies a variable: a site has at most one per slot. scope is "", production, preview, or "preview:" and a
// branch pattern.
type slot struct{ key, scope string }

func slotOf(key string, target []string, branch string) slot {
	scope := scopeOf(target)
	if branch != "" {
		scope += ":" + branch
	}
	return slot{key, scope}
}

func envPurpose(id ID, key string) string { return "site/" + string(id) + "/env/" + key }

// Env returns the owner's variables by key, without secret values.
func (s *Sites) Env(ctx context.Context, owner account.OwnerID, id ID) ([]Var, error) {
	if _, err := s.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	return s.vars(ctx, s.c.DB, id, false)
}

// Variables returns the decrypted variables for a build or runtime (target) of a deployment of branch for production or
// preview (scope). Among variables of one key, the one with the longest matching branch pattern wins.
func (s *Sites) Variables(ctx context.Context, id ID, target, scope, branch string) ([]Var, error) {
	all, err := s.vars(ctx, s.c.DB, id, true)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v Var) bool {
		return !slices.Contains(v.Target, target) || v.Scope() != "" && v.Scope() != scope ||
			v.Branch != "" && !matchBranch(v.Branch, branch)
	})
	best := map[string]string{} // pattern by key
	for _, v := range all {
		if have, ok := best[v.Key]; !ok || len(v.Branch) > len(have) || len(v.Branch) == len(have) && v.Branch > have {
			best[v.Key] = v.Branch
		}
	}
	return slices.DeleteFunc(all, func(v Var) bool { return best[v.Key] != v.Branch }), nil
}

// matchBranch reports whether a branch matches a pattern in which * stands for any characters, including slashes.
func matchBranch(pattern, branch string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(branch, parts[0])
	if len(parts) == 1 || !ok {
		return ok && rest == ""
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

func (s *Sites) vars(ctx context.Context, r db.Reader, id ID, secrets bool) ([]Var, error) {
	rows, err := r.Query(ctx, `
		SELECT `+varColumns+` FROM env WHERE site_id = $1 ORDER BY key, scope DESC`, id)
	out, err := db.Collect(rows, err, func(row db.Scanner) (Var, error) { return s.scanVar(row, id, secrets) })
	if err != nil {
		return nil, fmt.Errorf("list env: %w", err)
	}
	return out, nil
}

const varColumns = `id, key, value, secret, target, scope, created_at, updated_at`

func (s *Sites) scanVar(row db.Scanner, id ID, secrets bool) (Var, error) {
	var v Var
	var box, target, scope string
	if err := row.Scan(&v.ID, &v.Key, &box, &v.Secret, &target, &scope, &v.CreatedAt, &v.UpdatedAt); err != nil {
		return Var{}, err
	}
	v.Target = strings.Split(target, ",")
	_, v.Branch, _ = strings.Cut(scope, ":")
	if v.Secret && !secrets {
		return v, nil
	}
	plain, err := s.c.Seal.Open(box, envPurpose(id, v.Key))
	if err != nil {
		return Var{}, fmt.Errorf("open %s: %w", v.Key, err)
	}
	v.Value = string(plain)
	return v, nil
}

// SealedVars are validated variables sealed for one site, ready to be stored.
type SealedVars struct {
	site ID
	vars []sealedVar
}

type sealedVar struct {
	NewVar
	box string
}

// SealEnv validates variables and seals them for a site. It belongs before the transaction, since sealing a thousand
// values would block the database's writer.
func (s *Sites) SealEnv(id ID, vars []NewVar) (SealedVars, error) {
	if len(vars) == 0 || len(vars) > maxVars {
		return SealedVars{}, fault.New(fault.Invalid, "", "Send one variable or an array of them",
			"an array contains 1 to 1,000 variables")
	}
	out := SealedVars{site: id}
	at := map[slot]int{}
	for _, v := range vars {
		if err := checkVar(&v); err != nil {
			return SealedVars{}, err
		}
		sealed := sealedVar{v, s.c.Seal.Seal([]byte(v.Value), envPurpose(id, v.Key))}
		place := slotOf(v.Key, v.Target, v.Branch)
		if i, twice := at[place]; twice { // the last one wins
			out.vars[i] = sealed
			continue
		}
		_, both := at[slot{v.Key, ""}]
		_, production := at[slot{v.Key, scopes[0]}]
		_, preview := at[slot{v.Key, scopes[1]}]
		if v.Branch == "" && both || place.scope == "" && (production || preview) {
			return SealedVars{}, fault.New(fault.Invalid, "invalid_variable",
				"A variable is given for both targets and again for one of them",
				"send a key once for both, or once for production and once for preview").Got(text.Clip(v.Key, 200))
		}
		at[place] = len(out.vars)
		out.vars = append(out.vars, sealed)
	}
	return out, nil
}

// envBatch is the number of variables per statement.
const envBatch = 100

// SetEnvTx calls SealEnv and SetSealedEnvTx, for a few variables.
func (s *Sites) SetEnvTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, vars []NewVar) ([]Var, error) {
	sealed, err := s.SealEnv(id, vars)
	if err != nil {
		return nil, err
	}
	return s.SetSealedEnvTx(ctx, tx, owner, id, sealed)
}

// SetSealedEnvTx sets all variables or none, replacing existing ones. If nothing changes, it writes nothing and emits
// no event.
func (s *Sites) SetSealedEnvTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, sealed SealedVars) ([]Var, error) {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return nil, err
	}
	if sealed.site != id {
		return nil, fmt.Errorf("set env of %s: the variables were sealed for %s", id, sealed.site)
	}
	have, err := s.varRows(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	now := db.Now()
	out := make([]Var, len(sealed.vars)) // in the order of the input
	var write []int
	var gone []string // IDs of variables that others replace
	added := 0
	for i, v := range sealed.vars {
		place := slotOf(v.Key, v.Target, v.Branch)
		old, exists := have[place]
		// A variable for both scopes replaces those for one scope, and vice versa.
		if v.Branch == "" && (!exists || place.scope == "") {
			for _, other := range []slot{{v.Key, ""}, {v.Key, scopes[0]}, {v.Key, scopes[1]}} {
				x, there := have[other]
				if !there || other == place || other.scope != "" && place.scope != "" {
					continue
				}
				if !exists {
					old, exists = x, true
				}
				gone = append(gone, x.ID)
				delete(have, other)
			}
		}
		if exists && s.same(id, old, v.NewVar) {
			out[i] = old.Var
			out[i].Value = v.Value
		} else {
			out[i] = Var{
				ID:        db.NewID("env"),
				Key:       v.Key,
				Value:     v.Value,
				Secret:    v.Secret,
				Target:    v.Target,
				Branch:    v.Branch,
				CreatedAt: now,
				UpdatedAt: now,
			}
			write = append(write, i)
			if exists {
				out[i].ID, out[i].CreatedAt = old.ID, old.CreatedAt
			} else {
				added++
			}
		}
		if v.Secret {
			out[i].Value = ""
		}
	}
	if added > 0 && len(have)+added > maxVars {
		return nil, fault.New(fault.Conflict, "too_many_variables", "The site has too many variables",
			"at most 1,000; delete some first")
	}
	if len(write) == 0 && len(gone) == 0 {
		return out, nil
	}
	for batch := range slices.Chunk(gone, envBatch) {
		w := where{}
		for _, id := range batch {
			w.and(w.args.Add(id))
		}
		if _, err := tx.Exec(ctx, `DELETE FROM env WHERE id IN (`+strings.Join(w.parts, ", ")+`)`, w.args...); err != nil {
			return nil, fmt.Errorf("replace env: %w", err)
		}
	}
	if added > 0 {
		if err := s.c.Limits.RequireTx(ctx, tx, owner, limits.Env, int64(added)); err != nil {
			return nil, err
		}
	}
	for batch := range slices.Chunk(write, envBatch) {
		w := where{}
		site, at := w.args.Add(id), w.args.Add(now)
		for _, i := range batch {
			v := sealed.vars[i]
			w.and("(" + strings.Join([]string{
				w.args.Add(out[i].ID),
				site,
				w.args.Add(v.Key),
				w.args.Add(v.box),
				w.args.Add(v.Secret),
				w.args.Add(strings.Join(v.Target, ",")),
				w.args.Add(slotOf(v.Key, v.Target, v.Branch).scope),
				at,
				at,
			}, ", ") + ")")
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO env (id, site_id, key, value, secret, target, scope, created_at, updated_at) VALUES `+strings.Join(w.parts, ", ")+`
			ON CONFLICT (site_id, key, scope) DO UPDATE SET value = excluded.value, secret = excluded.secret, target = excluded.target,
			updated_at = excluded.updated_at`,
			w.args...)
		if err != nil {
			return nil, fmt.Errorf("set env: %w", err)
		}
	}
	return out, s.envChanged(ctx, tx, site)
}

// varRow is a variable with its value still sealed.
type varRow struct {
	Var
	box string
}

// varRows reads a site's variables without decrypting them.
func (s *Sites) varRows(ctx context.Context, r db.Reader, id ID) (map[slot]varRow, error) {
	out := map[slot]varRow{}
	rows, err := r.Query(ctx, `SELECT `+varColumns+` FROM env WHERE site_id = $1`, id)
	_, err = db.Collect(rows, err, func(row db.Scanner) (struct{}, error) {
		var v varRow
		var target, scope string
		err := row.Scan(&v.ID, &v.Key, &v.box, &v.Secret, &target, &scope, &v.CreatedAt, &v.UpdatedAt)
		v.Target = strings.Split(target, ",")
		_, v.Branch, _ = strings.Cut(scope, ":")
		out[slot{v.Key, scope}] = v
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("list env: %w", err)
	}
	return out, nil
}

// same reports whether setting v would change nothing. A value that can't be decrypted counts as different.
func (s *Sites) same(id ID, have varRow, v NewVar) bool {
	if have.Secret != v.Secret || !slices.Equal(have.Target, v.Target) {
		return false
	}
	plain, err := s.c.Seal.Open(have.box, envPurpose(id, v.Key))
	return err == nil && string(plain) == v.Value
}

// PatchVar changes the fields that aren't nil.
type PatchVar struct {
	Value  *string
	Secret *bool
	Target []string
	Branch *string
}

// VarTx returns one of the owner's variables, without a secret value.
func (s *Sites) VarTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, key string) (Var, error) {
	if _, err := s.GetTx(ctx, tx, owner, id); err != nil {
		return Var{}, err
	}
	return s.variable(ctx, tx, id, key, false)
}

// variable returns the site's variable with that key or ID. A key with one variable per scope needs the ID.
func (s *Sites) variable(ctx context.Context, r db.Reader, id ID, name string, secrets bool) (Var, error) {
	rows, err := r.Query(ctx, `
		SELECT `+varColumns+` FROM env WHERE site_id = $1 AND (key = $2 OR id = $2)`, id, name)
	list, err := db.Collect(rows, err, func(row db.Scanner) (Var, error) { return s.scanVar(row, id, secrets) })
	switch {
	case err != nil:
		return Var{}, fmt.Errorf("find variable: %w", err)
	case len(list) == 0:
		return Var{}, fault.Missing("variable")
	case len(list) > 1:
		return Var{}, fault.New(fault.Conflict, "variable_ambiguous",
			"The variable exists more than once, for different targets or branches",
			"use its id in place of the key")
	}
	return list[0], nil
}

// UpdateEnvTx changes one variable. A secret stays secret unless the change includes a new value, so that its value
// can't be revealed.
func (s *Sites) UpdateEnvTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, key string, p PatchVar) (Var, error) {
	if _, err := s.LockTx(ctx, tx, owner, id); err != nil {
		return Var{}, err
	}
	have, err := s.variable(ctx, tx, id, key, true)
	if err != nil {
		return Var{}, err
	}
	n := NewVar{Key: have.Key, Value: have.Value, Secret: have.Secret, Target: have.Target, Branch: have.Branch}
	if p.Branch != nil {
		n.Branch = *p.Branch
	}
	if p.Value != nil {
		n.Value = *p.Value
	}
	if p.Secret != nil {
		if have.Secret && !*p.Secret && p.Value == nil {
			return Var{}, fault.New(fault.Conflict, "secret_variable", "A secret variable can't be made readable",
				"send a new value with it")
		}
		n.Secret = *p.Secret
	}
	if p.Target != nil {
		n.Target = p.Target
	}
	if p.Target != nil || p.Branch != nil {
		if err := checkVar(&n); err != nil {
			return Var{}, err
		}
		from, to := slotOf(have.Key, have.Target, have.Branch).scope, slotOf(n.Key, n.Target, n.Branch).scope
		if from != to && (have.Branch != "" || n.Branch != "" || from != "" && to != "") { // it changes its slot
			if _, err := tx.Exec(ctx, `DELETE FROM env WHERE id = $1`, have.ID); err != nil {
				return Var{}, fmt.Errorf("move variable: %w", err)
			}
		}
	}
	set, err := s.SetEnvTx(ctx, tx, owner, id, []NewVar{n})
	if err != nil {
		return Var{}, err
	}
	return set[0], nil
}

// DeleteEnvTx deletes the variable with that ID, or all variables with that key.
func (s *Sites) DeleteEnvTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, key string) error {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `DELETE FROM env WHERE site_id = $1 AND (key = $2 OR id = $2)`, id, key)
	if err != nil {
		return fmt.Errorf("delete env: %w", err)
	}
	if n == 0 {
		return fault.Missing("variable")
	}
	return s.envChanged(ctx, tx, site)
}

// envChanged records that the live deployment is older than the settings.
func (s *Sites) envChanged(ctx context.Context, tx *db.Tx, site Site) error {
	tx.Notify("live") // nodes that run it compare the variables
	_, err := tx.Exec(ctx, `UPDATE sites SET needs_redeploy = $2, updated_at = $3 WHERE id = $1`, site.ID,
		site.LiveDeployment != "", db.Now())
	if err != nil {
		return fmt.Errorf("mark site: %w", err)
	}
	return s.c.Hooks.EmitTx(ctx, tx, site.Owner, event.SiteUpdated(s.Ref(site), "env"))
}

func checkVar(v *NewVar) error {
	bad := func(why, details string, received any) error {
		return fault.New(fault.Invalid, "invalid_variable", why, details).Got(received)
	}
	switch {
	case !keyPattern.MatchString(v.Key) || len(v.Key) > 256:
		return bad("Invalid variable key",
			"a key has letters, digits and underscores, doesn't begin with a digit, and has at most 256 characters",
			text.Clip(v.Key, 200))
	case strings.HasPrefix(strings.ToUpper(v.Key), "SLIPWAY_"):
		return bad("Variables that begin with SLIPWAY_ are set by the service", "choose another key", text.Clip(v.Key, 200))
	case len(v.Value) > maxValue:
		return bad("The variable's value is too long", "at most 32 KiB", nil)
	case !utf8.ValidString(v.Value) || strings.ContainsRune(v.Value, 0):
		return bad("The variable's value is not text", "UTF-8 without NUL", nil)
	}
	if v.Target == nil {
		v.Target = targets
	}
	const allowed = "target has build, runtime or both, and production or preview to limit the variable to one of them"
	if len(v.Target) == 0 {
		return bad("The variable has no target", allowed, nil)
	}
	for _, t := range v.Target {
		if !slices.Contains(targets, t) && !slices.Contains(scopes, t) {
			return bad("Unknown variable target", allowed, text.Clip(t, 200))
		}
	}
	if v.Branch != "" {
		switch {
		case fetch.CheckBranch(strings.ReplaceAll(v.Branch, "*", "x")) != nil:
			return bad("Invalid branch pattern",
				"branch is a branch's name or a pattern such as feature/*, with at most 244 bytes",
				text.Clip(v.Branch, 200))
		case slices.Contains(v.Target, "production"):
			return bad("A variable for branches only applies to previews",
				"leave production out of target; production has one branch", text.Clip(v.Branch, 200))
		}
		v.Target = append(slices.Clone(v.Target), "preview")
	}
	sent := v.Target
	left := func(t string) bool { return !slices.Contains(sent, t) }
	v.Target = slices.DeleteFunc(slices.Clone(targets), left)
	if len(v.Target) == 0 {
		v.Target = slices.Clone(targets)
	}
	if only := slices.DeleteFunc(slices.Clone(scopes), left); len(only) == 1 {
		v.Target = append(v.Target, only[0])
	}
	return nil
}

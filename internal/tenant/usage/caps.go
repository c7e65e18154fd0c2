package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// pausedTopic notifies nodes about owners whose bandwidth is almost or completely used up, or available again.
const pausedTopic = "paused"

// flushMost is more than nodes can send of one owner's bytes until all of them have stored their counts. With less
// remaining, nodes need loans. On one node it means 800 MB/s.
const (
	flushMost     = 8 << 30
	flushMostMany = 32 << 30
)

// Warnings lists the percentages of a limit at which owners are notified.
var Warnings = []int64{50, 75, 90, 100}

// Teller notifies owners about their use of a limit.
type Teller interface {
	TellUsageTx(ctx context.Context, tx *db.Tx, owner id.Owner, w Warning) error
}

// Warning describes the use of a limit.
type Warning struct {
	Name    limits.Name
	Percent int64 // an element of Warnings
	Used    int64 // in the limit's unit
	Limit   int64
	Window  limits.Window

	Throttle int64 // bytes per second for sites once the bandwidth is used up; 0: they are paused
}

// Connect sets the Teller. It must be called during startup.
func (u *Usage) Connect(t Teller) { u.teller = t }

// caps lists the meters with a limit per window, and the meter's quantity per unit of the limit.
var caps = []struct {
	meter Meter
	limit limits.Name
	each  int64
}{
	{Bandwidth, limits.Bandwidth, 1},
	{Build, limits.BuildMinutes, time.Minute.Milliseconds()},
}

// capState is the stored state of an owner's limit in a window.
type capState struct {
	owner id.Owner
	limits.Window
	most, warned   int64
	throttle       int64
	armed, reached bool
}

// enforceTx compares owners' use with their limits: it pauses sites whose bandwidth is used up, arms owners whose nodes
// need loans, and notifies owners. rows must be sorted by owner.
func (u *Usage) enforceTx(ctx context.Context, tx *db.Tx, rows []Row) error {
	if u.c.Limits == nil {
		return nil
	}
	for _, c := range caps {
		for some := range slices.Chunk(ownersOf(rows, c.meter), 200) {
			if err := u.enforceMeterTx(ctx, tx, c.meter, c.limit, c.each, some); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *Usage) enforceMeterTx(ctx context.Context, tx *db.Tx, m Meter, name limits.Name, each int64, owners []id.Owner) error {
	windows, err := u.windows(ctx, tx, owners, u.now())
	if err != nil {
		return err
	}
	used, err := u.usedIn(ctx, tx, windows, m)
	if err != nil {
		return err
	}
	stored, err := u.capStates(ctx, tx, m, windows)
	if err != nil {
		return err
	}
	for _, o := range owners {
		limit, err := u.c.Limits.LimitOf(ctx, tx, o, name)
		if err != nil {
			return err
		}
		was, used, window := stored[o], used[o]/each, windows[o]
		is := capState{owner: o, Window: window, most: limit, warned: was.warned, reached: used >= limit}
		is.armed = m == Bandwidth && limit-used < u.armedBelow(limit)
		if is.armed {
			if is.throttle, err = u.c.Limits.LimitOf(ctx, tx, o, limits.Throttle); err != nil {
				return err
			}
		}
		level := levelOf(used, limit)
		if was.most != limit { // warnings about another limit don't count
			is.warned = min(is.warned, level)
		}
		tell := level > is.warned
		is.warned = max(is.warned, level)
		if was == is || was.owner == "" && is.warned == 0 && !is.armed && !is.reached {
			continue
		}
		if err := writeCapTx(ctx, tx, m, is); err != nil {
			return err
		}
		if is.reached != was.reached || is.armed != was.armed || is.throttle != was.throttle {
			tx.Notify(pausedTopic)
			tx.Notify(o.Topic())
		}
		if tell && u.teller != nil {
			if err := u.teller.TellUsageTx(ctx, tx, o, Warning{name, level, used, limit, window, is.throttle}); err != nil {
				return err
			}
		}
	}
	return nil
}

// armedBelow returns the remaining amount below which nodes need loans.
func (u *Usage) armedBelow(limit int64) int64 {
	if limit == limits.Unlimited {
		return 0
	}
	flush := int64(flushMost)
	if !u.c.DB.Single() {
		flush = flushMostMany
	}
	return max(limit/10, flush)
}

// levelOf returns the highest percentage of Warnings reached, or 0.
func levelOf(used, limit int64) (level int64) {
	for _, w := range Warnings {
		if used >= limit || float64(used) >= float64(limit)*float64(w)/100 && w < 100 {
			level = w
		}
	}
	if limit == 0 {
		return 0 // the owner doesn't have this at all
	}
	return level
}

// writeCapTx stores the state of a limit.
func writeCapTx(ctx context.Context, tx *db.Tx, m Meter, s capState) error {
	if _, err := tx.Exec(ctx, `
		INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached, throttle, begins, ends)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (owner_id, meter, month) DO UPDATE
		SET most = excluded.most, warned = excluded.warned, armed = excluded.armed, reached = excluded.reached, throttle = excluded.throttle,
			begins = excluded.begins, ends = excluded.ends`,
		s.owner, m, s.Key(), s.most, s.warned, s.armed, s.reached, s.throttle, s.From, s.To); err != nil {
		return fmt.Errorf("write cap of owner: %w", err)
	}
	return nil
}

// inForce returns the condition for rows of usage_caps whose window includes now. Older versions stored no end of the
// window.
func (u *Usage) inForce(args *db.Args) string {
	now := args.Add(u.now())
	return `(begins <= ` + now + ` AND ends > ` + now + ` OR ends = 0 AND month = ` + args.Add(limits.Month(u.now())) + `)`
}

// capStates returns the stored states of owners in their windows.
func (u *Usage) capStates(ctx context.Context, r db.Reader, m Meter, windows map[id.Owner]limits.Window) (map[id.Owner]capState, error) {
	args := db.Args{m}
	list := db.AddList(&args, slices.Sorted(maps.Keys(windows)))
	keys := map[int64]bool{}
	for _, w := range windows {
		keys[w.Key()] = true
	}
	rows, err := r.Query(ctx, `
		SELECT owner_id, month, begins, ends, most, warned, armed, reached, throttle FROM usage_caps
		WHERE meter = $1 AND owner_id IN (`+list+`) AND month IN (`+db.AddList(&args, slices.Sorted(maps.Keys(keys)))+`)`, args...)
	out := map[id.Owner]capState{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (x capState, err error) {
		var key int64
		if err := s.Scan(&x.owner, &key, &x.From, &x.To, &x.most, &x.warned, &x.armed, &x.reached, &x.throttle); err != nil {
			return x, err
		}
		if key == windows[x.owner].Key() {
			out[x.owner] = x
		}
		return x, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read caps: %w", err)
	}
	return out, nil
}

// endTx ends the states of windows that don't include now, and with next also those of future windows.
func (u *Usage) endTx(ctx context.Context, tx *db.Tx, owners []id.Owner, next bool) error {
	windows, err := u.windows(ctx, tx, owners, u.now())
	if err != nil {
		return err
	}
	args := db.Args{u.now()}
	which := u.inForce(&args)
	if next {
		which = `(ends > $1 OR ` + which + `)`
	}
	var keys []string
	for _, o := range owners {
		keys = append(keys, `(CAST(`+args.Add(o)+` AS TEXT), CAST(`+args.Add(windows[o].Key())+` AS BIGINT))`)
	}
	n, err := tx.Exec(ctx, `UPDATE usage_caps SET ends = $1 WHERE `+which+` AND owner_id IN (`+db.AddList(&args, owners)+`)
		AND (owner_id, month) NOT IN (VALUES `+strings.Join(keys, ", ")+`)`, args...)
	if err != nil {
		return fmt.Errorf("end caps of owners: %w", err)
	}
	if n > 0 {
		tx.Notify(pausedTopic)
	}
	return nil
}

// ReconsiderTx enforces an owner's limits at once after a change of their subscription, which may change the window.
func (u *Usage) ReconsiderTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	if u.c.Limits == nil {
		return nil
	}
	if err := u.endTx(ctx, tx, []id.Owner{owner}, true); err != nil {
		return err
	}
	for _, c := range caps {
		if err := u.enforceMeterTx(ctx, tx, c.meter, c.limit, c.each, []id.Owner{owner}); err != nil {
			return err
		}
	}
	return nil
}

// reconsider checks all owners near a limit again, since the operator or a plan may have changed it.
func (u *Usage) reconsider(ctx context.Context) error {
	if u.c.Limits == nil {
		return nil
	}
	if err := u.recheck(ctx, ``); err != nil {
		return err
	}
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM usage_loans WHERE until < $1`, u.now().Add(-day)); err != nil {
			return err
		}
		old := u.now().Add(-keepSites)
		_, err := tx.Exec(ctx, `DELETE FROM usage_caps WHERE ends > 0 AND ends < $1 OR ends = 0 AND month < $2`, old, limits.Month(old))
		return err
	})
}

// resume checks owners whose limit has been raised by a plan or grant.
func (u *Usage) resume(ctx context.Context) error {
	if u.c.Limits == nil {
		return nil
	}
	return u.recheck(ctx, ` AND reached`)
}

// recheck enforces the limits of selected owners near a limit again.
func (u *Usage) recheck(ctx context.Context, which string) error {
	var args db.Args
	rows, err := u.c.DB.Query(ctx, `SELECT DISTINCT owner_id FROM usage_caps WHERE `+u.inForce(&args)+which, args...)
	near, err := db.Collect(rows, err, scanOwner)
	if err != nil {
		return fmt.Errorf("find owners near a limit: %w", err)
	}
	slices.Sort(near)
	for some := range slices.Chunk(near, 200) {
		if err := u.c.DB.Write(ctx, func(tx *db.Tx) error {
			if err := u.endTx(ctx, tx, some, false); err != nil {
				return err
			}
			for _, c := range caps {
				if err := u.enforceMeterTx(ctx, tx, c.meter, c.limit, c.each, some); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// smallAtOnce caps the owners armed per transaction, to keep it short.
const smallAtOnce = 200

// armSmall arms owners whose whole limit is so small that nodes need loans from the window's start. It only looks up
// the limits of owners that may have such a limit and aren't armed, since it runs often and there may be many owners.
// With only, it is restricted to these owners.
func (u *Usage) armSmall(ctx context.Context, at db.Time, only ...id.Owner) error {
	if u.c.Limits == nil {
		return nil
	}
	small := u.c.Limits.Below(limits.Bandwidth, flushMostMany)
	args := db.Args{Bandwidth, at}
	who := `s.kind = 'personal' AND s.name IN (` + db.AddList(&args, small.Users) + `) OR s.kind = 'team' AND s.name IN (` + db.AddList(&args, small.Teams) + `)`
	if small.Plans {
		who += ` OR EXISTS (SELECT 1 FROM plan_limits p WHERE p.owner_id = s.owner_id AND p.name = $1 AND p.value < ` + args.Add(int64(flushMostMany)) + `)`
	}
	switch {
	case small.Anybody && small.Plans: // an owner whose plan has a limit doesn't have the default
		who += ` OR NOT EXISTS (SELECT 1 FROM plan_limits p WHERE p.owner_id = s.owner_id AND p.name = $1)`
	case small.Anybody:
		who = `1 = 1`
	case !small.Plans && len(small.Users)+len(small.Teams) == 0:
		return nil
	}
	if len(only) > 0 {
		who = `(` + who + `) AND s.owner_id IN (` + db.AddList(&args, only) + `)`
	}
	args = append(args, id.Owner(""), smallAtOnce)
	after := len(args) - 2
	for {
		rows, err := u.c.DB.Query(ctx, fmt.Sprintf(`
			SELECT s.owner_id FROM owner_standing s
			WHERE NOT EXISTS (SELECT 1 FROM usage_caps c WHERE c.owner_id = s.owner_id AND c.meter = $1 AND c.begins <= $2 AND c.ends > $2)
			AND (%s) AND s.owner_id > $%d ORDER BY s.owner_id LIMIT $%d`, who, after+1, after+2), args...)
		owners, err := db.Collect(rows, err, scanOwner)
		if err != nil {
			return fmt.Errorf("find owners with a small limit: %w", err)
		}
		if err := u.armOwners(ctx, at, owners); err != nil || len(owners) < smallAtOnce {
			return err
		}
		args[after] = owners[len(owners)-1]
	}
}

// armOwners arms those of the owners whose limit is small, for the window containing at.
func (u *Usage) armOwners(ctx context.Context, at db.Time, owners []id.Owner) error {
	limit, throttle := map[id.Owner]int64{}, map[id.Owner]int64{}
	for _, o := range owners {
		n, err := u.c.Limits.LimitOf(ctx, u.c.DB, o, limits.Bandwidth)
		if err != nil {
			return err
		}
		if n >= u.armedBelow(n) {
			continue
		}
		limit[o] = n
		if throttle[o], err = u.c.Limits.LimitOf(ctx, u.c.DB, o, limits.Throttle); err != nil {
			return err
		}
	}
	if len(limit) == 0 {
		return nil
	}
	err := u.c.DB.Write(ctx, func(tx *db.Tx) error {
		windows, err := u.windows(ctx, tx, slices.Collect(maps.Keys(limit)), at)
		if err != nil {
			return err
		}
		tx.Notify(pausedTopic)
		for _, o := range slices.Sorted(maps.Keys(limit)) {
			w := windows[o]
			if _, err := tx.Exec(ctx, `
				INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached, throttle, begins, ends)
				VALUES ($1, $2, $3, $4, 0, TRUE, $5, $6, $7, $8)
				ON CONFLICT (owner_id, meter, month) DO UPDATE
				SET most = excluded.most, armed = TRUE, throttle = excluded.throttle, begins = excluded.begins, ends = excluded.ends
				WHERE usage_caps.ends <> excluded.ends`,
				o, Bandwidth, w.Key(), limit[o], limit[o] <= 0, throttle[o], w.From, w.To); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write caps of owners: %w", err)
	}
	return nil
}

func scanOwner(s db.Scanner) (o id.Owner, err error) { return o, s.Scan(&o) }

// armEvery is the interval of looking for owners with small limits, and armAhead how long before a window they are
// armed.
const (
	armEvery = 10 * time.Second
	armAhead = time.Minute
)

// Run enforces limits until ctx ends: it arms small limits of new accounts and next windows, and resumes owners whose
// limit was raised.
func (u *Usage) Run(ctx context.Context) error {
	tick := time.NewTicker(armEvery)
	defer tick.Stop()
	for {
		if err := u.resume(ctx); err != nil && ctx.Err() == nil {
			u.c.Log.WarnContext(ctx, "larger limits not put into force, will be retried", "err", err)
		}
		for _, at := range []db.Time{u.now(), u.now().Add(armAhead)} {
			if err := u.armSmall(ctx, at); err != nil && ctx.Err() == nil {
				u.c.Log.WarnContext(ctx, "small limits not put into force, will be retried", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

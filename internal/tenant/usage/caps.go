package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// pausedTopic wakes who acts on owners whose bandwidth is nearly or wholly used up, or is there again.
const pausedTopic = "paused"

// flushMost is more than nodes send of one owner's bytes before all of them have written what they counted: where less is
// left, they need loans. On one node that is 800 MB/s.
const (
	flushMost     = 8 << 30
	flushMostMany = 32 << 30
)

// Warnings are the shares of a limit, in percent, that owners are told of.
var Warnings = []int64{50, 75, 90, 100}

// Teller tells owners that they have used a share of a limit.
type Teller interface {
	TellUsageTx(ctx context.Context, tx *db.Tx, owner id.Owner, w Warning) error
}

// Warning says how much of a month's limit is used.
type Warning struct {
	Name    limits.Name
	Percent int64 // one of Warnings
	Used    int64 // in the limit's unit
	Limit   int64
	Month   int64 // year and month (UTC), such as 202611

	Throttle int64 // bytes per second that sites get at the limit of bandwidth; 0: they are paused
}

// Connect says who tells owners. It is called while the program is put together.
func (u *Usage) Connect(t Teller) { u.teller = t }

// caps are the meters that have a limit of the month, and how much of a meter is one of the limit's unit.
var caps = []struct {
	meter Meter
	limit limits.Name
	each  int64
}{
	{Bandwidth, limits.Bandwidth, 1},
	{Build, limits.BuildMinutes, time.Minute.Milliseconds()},
}

// standing is how near an owner is to the limit of a month, as it is stored.
type standing struct {
	owner          id.Owner
	most, warned   int64
	throttle       int64
	armed, reached bool
}

// enforceTx compares what owners have used with what they may: it pauses the sites of those who have used up their
// bandwidth, has nodes borrow where little is left, and tells owners. rows are sorted by owner.
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
	month := limits.Month(u.now())
	used, err := u.months(ctx, tx, owners, m)
	if err != nil {
		return err
	}
	stored, err := u.standings(ctx, tx, m, month, owners)
	if err != nil {
		return err
	}
	for _, o := range owners {
		most, err := u.c.Limits.LimitOf(ctx, tx, o, name)
		if err != nil {
			return err
		}
		was, used := stored[o], used[o]/each
		is := standing{owner: o, most: most, warned: was.warned, reached: used >= most}
		if is.armed = m == Bandwidth && most-used < u.armedBelow(most); is.armed {
			if is.throttle, err = u.c.Limits.LimitOf(ctx, tx, o, limits.Throttle); err != nil {
				return err
			}
		}
		level := levelOf(used, most)
		if was.most != most { // what was told of another limit says nothing of this one
			is.warned = min(is.warned, level)
		}
		tell := level > is.warned
		is.warned = max(is.warned, level)
		if was == is || was.owner == "" && is.warned == 0 && !is.armed && !is.reached {
			continue
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached, throttle) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (owner_id, meter, month) DO UPDATE
			SET most = excluded.most, warned = excluded.warned, armed = excluded.armed, reached = excluded.reached, throttle = excluded.throttle`,
			o, m, month, most, is.warned, is.armed, is.reached, is.throttle); err != nil {
			return fmt.Errorf("write cap of owner: %w", err)
		}
		if is.reached != was.reached || is.armed != was.armed || is.throttle != was.throttle {
			tx.Notify(pausedTopic)
			tx.Notify(o.Topic())
		}
		if tell && u.teller != nil {
			if err := u.teller.TellUsageTx(ctx, tx, o, Warning{name, level, used, most, month, is.throttle}); err != nil {
				return err
			}
		}
	}
	return nil
}

// armedBelow returns the rest of a limit below which nodes need loans.
func (u *Usage) armedBelow(most int64) int64 {
	if most == limits.Unlimited {
		return 0
	}
	flush := int64(flushMost)
	if !u.c.DB.Single() {
		flush = flushMostMany
	}
	return max(most/10, flush)
}

// levelOf returns the highest of Warnings that is reached, or 0.
func levelOf(used, most int64) (level int64) {
	for _, w := range Warnings {
		if used >= most || float64(used) >= float64(most)*float64(w)/100 && w < 100 {
			level = w
		}
	}
	if most == 0 {
		return 0 // it is not for this owner: there is nothing to warn of
	}
	return level
}

// standings returns what is stored of owners' limits in a month.
func (u *Usage) standings(ctx context.Context, r db.Reader, m Meter, month int64, owners []id.Owner) (map[id.Owner]standing, error) {
	args := db.Args{m, month}
	list := db.AddList(&args, owners)
	rows, err := r.Query(ctx, `
		SELECT owner_id, most, warned, armed, reached, throttle FROM usage_caps WHERE meter = $1 AND month = $2 AND owner_id IN (`+list+`)`, args...)
	out := map[id.Owner]standing{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (x standing, err error) {
		if err := s.Scan(&x.owner, &x.most, &x.warned, &x.armed, &x.reached, &x.throttle); err != nil {
			return x, err
		}
		out[x.owner] = x
		return x, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read caps: %w", err)
	}
	return out, nil
}

// reconsider looks again at who is near a limit, which the operator or a plan may have changed.
func (u *Usage) reconsider(ctx context.Context) error {
	if u.c.Limits == nil {
		return nil
	}
	if err := u.look(ctx, ``); err != nil {
		return err
	}
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM usage_loans WHERE until < $1`, u.now().Add(-day)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM usage_caps WHERE month < $1`, limits.Month(u.now().Add(-keepSites)))
		return err
	})
}

// resume lets those go on whose limit is larger by now: they have chosen another plan, or were granted more.
func (u *Usage) resume(ctx context.Context) error {
	if u.c.Limits == nil {
		return nil
	}
	return u.look(ctx, ` AND reached`)
}

// look compares again what some owners near a limit have used with what they may.
func (u *Usage) look(ctx context.Context, which string) error {
	rows, err := u.c.DB.Query(ctx, `SELECT DISTINCT owner_id FROM usage_caps WHERE month = $1`+which, limits.Month(u.now()))
	near, err := db.Collect(rows, err, scanOwner)
	if err != nil {
		return fmt.Errorf("find owners near a limit: %w", err)
	}
	slices.Sort(near)
	for some := range slices.Chunk(near, 200) {
		if err := u.c.DB.Write(ctx, func(tx *db.Tx) error {
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

// smallAtOnce bounds a transaction that arms owners, so that it holds up others for a moment only.
const smallAtOnce = 200

// armSmall has nodes borrow from the beginning of a month where the whole limit is so little that they need loans. It asks for the
// limit of those alone who may have such a one and for whom that isn't noted yet: there may be many owners, and this is done all
// the time.
func (u *Usage) armSmall(ctx context.Context, month int64) error {
	if u.c.Limits == nil {
		return nil
	}
	small := u.c.Limits.Below(limits.Bandwidth, flushMostMany)
	args := db.Args{Bandwidth, month}
	who := `s.kind = 'personal' AND s.name IN (` + db.AddList(&args, small.Users) + `) OR s.kind = 'team' AND s.name IN (` + db.AddList(&args, small.Teams) + `)`
	if small.Plans {
		who += ` OR EXISTS (SELECT 1 FROM plan_limits p WHERE p.owner_id = s.owner_id AND p.name = $1 AND p.value < ` + args.Add(int64(flushMostMany)) + `)`
	}
	switch {
	case small.Anybody && small.Plans: // whose plan has a limit has another one than the default
		who += ` OR NOT EXISTS (SELECT 1 FROM plan_limits p WHERE p.owner_id = s.owner_id AND p.name = $1)`
	case small.Anybody:
		who = `1 = 1`
	case !small.Plans && len(small.Users)+len(small.Teams) == 0:
		return nil
	}
	args = append(args, id.Owner(""), smallAtOnce)
	after := len(args) - 2
	for {
		rows, err := u.c.DB.Query(ctx, fmt.Sprintf(`
			SELECT s.owner_id FROM owner_standing s
			WHERE NOT EXISTS (SELECT 1 FROM usage_caps c WHERE c.owner_id = s.owner_id AND c.meter = $1 AND c.month = $2)
			AND (%s) AND s.owner_id > $%d ORDER BY s.owner_id LIMIT $%d`, who, after+1, after+2), args...)
		owners, err := db.Collect(rows, err, scanOwner)
		if err != nil {
			return fmt.Errorf("find owners with a small limit: %w", err)
		}
		if err := u.armOwners(ctx, month, owners); err != nil || len(owners) < smallAtOnce {
			return err
		}
		args[after] = owners[len(owners)-1]
	}
}

// armOwners has nodes borrow from now on for those of some owners whose limit is small.
func (u *Usage) armOwners(ctx context.Context, month int64, owners []id.Owner) error {
	most, throttle := map[id.Owner]int64{}, map[id.Owner]int64{}
	for _, o := range owners {
		n, err := u.c.Limits.LimitOf(ctx, u.c.DB, o, limits.Bandwidth)
		if err != nil {
			return err
		}
		if n >= u.armedBelow(n) {
			continue
		}
		most[o] = n
		if throttle[o], err = u.c.Limits.LimitOf(ctx, u.c.DB, o, limits.Throttle); err != nil {
			return err
		}
	}
	if len(most) == 0 {
		return nil
	}
	err := u.c.DB.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(pausedTopic)
		for _, o := range slices.Sorted(maps.Keys(most)) {
			if _, err := tx.Exec(ctx, `
				INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached, throttle) VALUES ($1, $2, $3, $4, 0, TRUE, $5, $6)
				ON CONFLICT (owner_id, meter, month) DO NOTHING`, o, Bandwidth, month, most[o], most[o] <= 0, throttle[o]); err != nil {
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

// armEvery is how often owners are looked for whose limit is small; armAhead how long before a month begins.
const (
	armEvery = 10 * time.Second
	armAhead = time.Minute
)

// Run keeps limits in force until ctx ends: small ones of new accounts and of the next month, and larger ones of those who are
// paused.
func (u *Usage) Run(ctx context.Context) error {
	tick := time.NewTicker(armEvery)
	defer tick.Stop()
	for {
		if err := u.resume(ctx); err != nil && ctx.Err() == nil {
			u.c.Log.WarnContext(ctx, "larger limits not put into force, will be retried", "err", err)
		}
		for _, at := range []db.Time{u.now(), u.now().Add(armAhead)} {
			if err := u.armSmall(ctx, limits.Month(at)); err != nil && ctx.Err() == nil {
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

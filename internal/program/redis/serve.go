package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
)

// maxConns is how many connections a program has at once.
const maxConns = 128

// Serve leads a client's program, which connects to l, to the server until ctx ends.
func (r *Redis) Serve(ctx context.Context, of Client, l net.Listener) {
	var conns panics.Background
	defer conns.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var open atomic.Int64
	var down atomic.Bool // the site's log says so
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				c.Close()
			}
			return
		case err != nil:
			time.Sleep(5 * time.Millisecond) // out of descriptors: others must close some first
			continue
		}
		// share: total 128 connections of a program; owner its own programs'; edge the connection is refused
		if open.Add(1) > 2*maxConns { // the second half hears that it is refused
			open.Add(-1)
			c.Close()
			continue
		}
		refused := open.Load() > maxConns
		conns.Go(func() {
			defer open.Add(-1)
			defer c.Close()
			if refused {
				refuse(ctx, c, fmt.Sprintf("this program may have %d connections to Redis at once", maxConns))
				return
			}
			if !r.enter(of.Owner) {
				refuse(ctx, c, fmt.Sprintf("the programs of this account may have %d connections to Redis at once", maxOwner))
				return
			}
			defer r.leave(of.Owner)
			up, err := r.open(ctx, of)
			if err != nil {
				if ctx.Err() == nil && !down.Swap(true) {
					r.log.WarnContext(ctx, "a program doesn't reach the Redis server", "site", of.Site, "err", err)
					r.logs.Note(of.Site, "The Redis server is not available")
				}
				refuse(ctx, c, "the Redis server is not available")
				return
			}
			defer up.Close()
			if down.Swap(false) {
				r.logs.Note(of.Site, "The Redis server is available again")
			}
			carry(ctx, c, up.Conn)
		})
	}
}

// maxOwner is how many connections the programs of an owner have at once on this node: Redis takes 10,000 by default.
const maxOwner = 1024

// enter counts a connection of an owner's in, unless there are too many; leave counts it out.
func (r *Redis) enter(owner id.Owner) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected[owner] >= maxOwner {
		return false
	}
	r.connected[owner]++
	return true
}

func (r *Redis) leave(owner id.Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected[owner]--; r.connected[owner] == 0 {
		delete(r.connected, owner)
	}
}

// carry copies bytes until either side ends.
func carry(ctx context.Context, program, server net.Conn) {
	end := func() { program.Close(); server.Close() }
	stop := context.AfterFunc(ctx, end)
	defer stop()
	done := make(chan struct{})
	// uncaught: copies bytes
	go func() {
		defer close(done)
		_, _ = io.Copy(server, program)
		end()
	}()
	_, _ = io.Copy(program, server)
	end()
	<-done
}

// refuse answers what the program asks first, and closes. It waits for that: a program that still writes when the connection has ended
// doesn't read why.
func refuse(ctx context.Context, c net.Conn, why string) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(patience))
	var asked [4096]byte
	_, _ = c.Read(asked[:])
	_, _ = io.WriteString(c, "-ERR "+why+"\r\n")
	_ = c.Close()
}

// ForgetSite deletes a deleted site's users and keys, and those of its previews. While the server doesn't answer it is to be called again.
func (r *Redis) ForgetSite(ctx context.Context, site id.Site) error {
	if r == nil {
		return nil
	}
	if !safe.MatchString(string(site)) {
		return nil
	}
	err := r.server.forget(ctx, site)
	if err != nil {
		r.log.WarnContext(ctx, "keys of a deleted site are still on the Redis server", "site", site, "err", err)
		return job.Later(time.Minute)
	}
	return nil
}

func (s *Server) forget(ctx context.Context, site id.Site) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	call := func(words ...string) (any, error) {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		return c.call(words...)
	}
	if err := s.login(c); err != nil {
		return err
	}
	// The users first: then nothing of the site comes after.
	users, err := call("ACL", "USERS")
	if err != nil {
		return err
	}
	list, _ := users.([]any)
	for _, x := range list {
		name, _ := x.(string)
		if of, ours := strings.CutPrefix(name, userPrefix); ours && (of == string(site) || strings.HasPrefix(of, string(site)+".")) {
			if _, err := call("ACL", "DELUSER", name); err != nil {
				return err
			}
		}
	}
	about, err := call("INFO", "keyspace")
	if err != nil {
		return err
	}
	text, _ := about.(string)
	for line := range strings.Lines(text) {
		db, _, _ := strings.Cut(line, ":")
		number, isDB := strings.CutPrefix(db, "db")
		if !isDB {
			continue
		}
		if _, err := call("SELECT", number); err != nil {
			return err
		}
		for _, pattern := range []string{string(site) + ":*", string(site) + ".*"} {
			if err := sweep(call, pattern); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep deletes the keys of a pattern, a thousand looked at at a time.
func sweep(call func(...string) (any, error), pattern string) error {
	for from := "0"; ; {
		x, err := call("SCAN", from, "MATCH", pattern, "COUNT", "1000")
		if err != nil {
			return err
		}
		answer, _ := x.([]any)
		if len(answer) != 2 {
			return errAnswer
		}
		keys, _ := answer[1].([]any)
		words := []string{"UNLINK"}
		for _, k := range keys {
			key, _ := k.(string)
			words = append(words, key)
		}
		if len(words) > 1 {
			if _, err := call(words...); err != nil {
				return err
			}
		}
		if from, _ = answer[0].(string); from == "0" || from == "" {
			return nil
		}
	}
}

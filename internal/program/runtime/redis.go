package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/sandbox"
	"slipway/internal/program/php"
)

// NoRedis says in words why programs can't have a Redis here; empty: they can.
func (p *Processes) NoRedis() string {
	if p.c.RedisNamed {
		return ""
	}
	_, why := RedisServer(p.c.Redis)
	return why
}

// RedisServer returns the program that [Spec.Redis] runs: the operator's, or the one in PATH. why
// says in words why there is none.
func RedisServer(setting string) (program, why string) {
	if setting != "" {
		if info, err := os.Stat(setting); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return "", fmt.Sprintf("The operator's setting --redis-server names no program: %s", setting)
		}
		return setting, ""
	}
	program, err := exec.LookPath("redis-server")
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return "", "Redis is not installed: the operator can install it (apt-get install redis-server) or name a program with --redis-server"
	}
	return program, ""
}

// Where a program finds its Redis. Who may connect is in the sandbox: nobody else sees the
// socket, so there is no password and no command is forbidden.
const (
	redisDir     = "/etc/slipway-redis" // ours, read-only
	redisConf    = redisDir + "/redis.conf"
	redisEpoch   = redisDir + "/epoch"
	redisProgram = "/opt/slipway-redis/redis-server" // Debian's has several names, and looks by which it is called
	redisWork    = ".redis"                          // of the scratch space: the program's own
	redisSocket  = "redis.sock"
	redisCounter = "epoch"
)

// The part of a program's memory that its Redis may fill with values.
const (
	redisPart  = 8
	redisLeast = 8 << 20
	redisMost  = 128 << 20
)

func redisMemory(limit int64) int64 { return min(redisMost, max(redisLeast, limit/redisPart)) }

// redisOverhead returns how much Redis takes beside the values that fill it: empty it has 2.4 MiB of
// its own, the shell that starts it 0.1, and gaps between values of changing sizes are a tenth of them.
func redisOverhead(values int64) int64 { return 5<<20 + values/8 }

// redisAllocator has Redis give back at once what it frees: while values of other sizes took the
// place of those before, its memory grew to twice its bound. Another allocator ignores it.
const redisAllocator = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0"

// redisLoop starts Redis again when it has ended, later and later: the program goes on without
// it meanwhile. What it prints at its start is nobody's business.
const redisLoop = `wait=1
while :; do
  begun=$(date +%s)
  MALLOC_CONF=` + redisAllocator + ` ` + redisProgram + ` ` + redisConf + ` >/dev/null 2>&1
  code=$?
  [ $(($(date +%s) - begun)) -gt 300 ] && wait=1
  echo "The object cache (Redis) ended with exit code $code; it starts again in $wait s" >&2
  sleep $wait
  wait=$((wait * 2)); [ $wait -gt 60 ] && wait=60
done`

// redis has a Redis run beside PHP-FPM: in its sandbox, within its limits, and empty whenever
// it begins. What follows of the memory for PHP is returned. With the operator's server nothing is run; what another process of the
// site has stored there is not found, as in a server that begins.
func (p *Processes) redis(s Spec, x *process, cmd *sandbox.Command, dir string) (left int64, err error) {
	left = s.Limits.Memory
	if !s.Redis {
		return left, nil
	}
	program, why := "", ""
	switch {
	case s.RedisServer:
	case x.root != nil: // the host's needs the host's libraries
		program = filepath.Join(x.root.Tree(), "usr/bin/redis-server")
	default:
		program, why = RedisServer(p.c.Redis)
	}
	if why != "" { // it was there when the site asked for it
		p.c.Log.Warn("object cache of a program not started", "site", s.Site, "why", why)
		return left, nil
	}
	inside := path.Join(sandbox.Root, redisWork)
	work := filepath.Join(cmd.Work, redisWork)
	if err := os.Mkdir(work, 0o700); err != nil {
		return left, fmt.Errorf("prepare object cache: %w", err)
	}
	// It has its size from the beginning: what fills the disk does not keep it from being changed.
	// unsynced: each start of the program writes it
	if err := os.WriteFile(filepath.Join(work, redisCounter), []byte("0000000000000000"), 0o600); err != nil {
		return left, fmt.Errorf("prepare object cache: %w", err)
	}
	if err := sandbox.Own(work, cmd.UID); err != nil {
		return left, err
	}
	own := filepath.Join(dir, "redis")
	if err := os.Mkdir(own, 0o755); err != nil {
		return left, fmt.Errorf("prepare object cache: %w", err)
	}
	x.epoch = filepath.Join(own, redisCounter)
	if err := BumpEpoch(x.epoch, false); err != nil {
		return left, err
	}
	cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: own, Target: redisDir})
	cmd.Env = append(cmd.Env, "SLIPWAY_REDIS_EPOCHS="+redisEpoch+":"+path.Join(inside, redisCounter))
	if s.RedisServer {
		cmd.Env = append(cmd.Env, "SLIPWAY_REDIS="+RedisServerSocket)
		return left, nil
	}
	most := redisMemory(s.Limits.Memory)
	// unsynced: each start of the program writes it
	if err := os.WriteFile(filepath.Join(own, "redis.conf"), redisConfig(inside, most), 0o644); err != nil {
		return left, fmt.Errorf("prepare object cache: %w", err)
	}
	cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: program, Target: redisProgram})
	cmd.Beside = append(cmd.Beside, []string{"/bin/sh", "-c", redisLoop})
	cmd.Env = append(cmd.Env, "SLIPWAY_REDIS="+path.Join(inside, redisSocket))
	return left - most - redisOverhead(most), nil
}

// Workers returns how many workers the PHP-FPM of s has at most.
func (s Spec) Workers() int {
	memory := s.Limits.Memory
	if s.Redis && !s.RedisServer {
		most := redisMemory(memory)
		memory -= most + redisOverhead(most)
	}
	return php.WorkersOf(memory)
}

// redisConfig returns the settings of a Redis beside PHP-FPM, in a directory inside its sandbox.
func redisConfig(inside string, most int64) []byte {
	return fmt.Appendf(nil, `port 0
unixsocket %[1]s/`+redisSocket+`
unixsocketperm 700
dir %[1]s
daemonize no
databases 1
save ""
appendonly no
maxmemory %[2]d
maxmemory-policy allkeys-lru
maxclients 128
timeout 0
proto-max-bulk-len 4mb
client-query-buffer-limit 8mb
client-output-buffer-limit normal 64mb 16mb 10
lazyfree-lazy-user-flush yes
activerehashing no
loglevel warning
`, inside, most)
}

// How an epoch begins in which Redis is asked, and one in which it is not.
const (
	epochOn  = "on_"
	epochOff = "off"
)

// BumpEpoch makes what a Redis holds unfindable: the epoch is part of every key. Where it is off,
// Redis is not asked until the next one. All are equally long: on a full disk one takes the place of
// the other.
func BumpEpoch(name string, off bool) error {
	begin := epochOn
	if off {
		begin = epochOff
	}
	text := []byte(begin + strconv.FormatInt(time.Now().UnixNano(), 36))
	next := name + ".next"
	// unsynced: each start of the program writes it
	err := os.WriteFile(next, text, 0o644)
	if err == nil {
		err = os.Rename(next, name)
	}
	if err != nil {
		err = overwrite(name, text)
	}
	if err != nil {
		return fmt.Errorf("clear object cache: %w", err)
	}
	return nil
}

func overwrite(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Close())
}

// ClearRedis makes what the Redis of a site's programs hold unfindable: what they were made
// from, the site's database, has been changed by somebody else. It reports whether a program has one.
func (p *Processes) ClearRedis(site id.Site) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clearRedis(site)
}

// clearRedis is for who has the lock. While several programs of a site reach its database, each
// changes it behind the others' backs, and none asks its Redis.
func (p *Processes) clearRedis(site id.Site) (found bool) {
	off := len(p.sharing[site]) > 1
	for x := range p.sharing[site] {
		if x.epoch == "" {
			continue
		}
		found = true
		if err := BumpEpoch(x.epoch, off); err != nil && !errors.Is(err, fs.ErrNotExist) { // stale values are worse than none
			p.c.Log.Error("object cache not cleared; the program is ended", "site", site, "err", err)
			x.kill()
		}
	}
	return found
}

// shares reports whether a program may change what others of its site hold copies of.
func (s Spec) shares() bool { return s.Database || s.Redis }

// share counts a program that is about to reach its site's database. The caller calls unshare once
// it has ended, and hears whether others of the site go on.
func (p *Processes) share(x *process, s Spec) (unshare func() (others bool)) {
	if !s.shares() {
		return func() bool { return false }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sharing[s.Site] == nil {
		p.sharing[s.Site] = map[*process]bool{}
	}
	p.sharing[s.Site][x] = true
	p.clearRedis(s.Site)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.sharing[s.Site], x)
		others := len(p.sharing[s.Site]) > 0
		if !others {
			delete(p.sharing, s.Site)
		}
		p.clearRedis(s.Site)
		return others
	}
}

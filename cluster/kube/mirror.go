package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/cluster/pod"
	"slipway/cluster/stored"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

const (
	// keeperMemory is a keeper's memory limit. A keeper stores the names of requested files.
	keeperMemory = 192 << 20
	// silentKeeper limits a keeper's inactivity while it is needed.
	silentKeeper = 2 * time.Minute
)

// mirrors holds copies of sites' storage for backups, restores and imports, which work on directories.
type mirrors struct {
	dir string // used exclusively
	mu  sync.Mutex
	// share: total the sites that are backed up or restored here; owner see backup's queue; edge gone with the work
	by map[id.Site]*mirror // guarded by mu
}

// mirror is a copy of a site's storage. While it is in use, a keeper pod with the volume may run.
type mirror struct {
	users int // guarded by mirrors.mu

	mu     sync.Mutex // held during changes
	copy   *stored.Copy
	keeper *program // nil: none
}

// mirror returns the copy of a site's storage and adds users to its count.
func (e *Engine) mirror(site id.Site, users int) (*mirror, error) {
	e.mirrors.mu.Lock()
	defer e.mirrors.mu.Unlock()
	m := e.mirrors.by[site]
	if m == nil {
		c, err := stored.NewCopy(filepath.Join(e.mirrors.dir, claimName(site, "")+"-"+rand.Text()[:8]))
		if err != nil {
			return nil, noRoom(err)
		}
		m = &mirror{copy: c}
		e.mirrors.by[site] = m
	}
	m.users += users
	return m, nil
}

// has returns the copy of a site's storage, or nil.
func (m *mirrors) has(site id.Site) *mirror {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[site]
}

// leave subtracts users from a copy's count and deletes the copy when none are left.
func (e *Engine) leave(site id.Site, m *mirror, users int) {
	e.mirrors.mu.Lock()
	m.users -= users
	last := m.users == 0 && e.mirrors.by[site] == m
	if last {
		delete(e.mirrors.by, site)
		e.dismiss(m)
	}
	e.mirrors.mu.Unlock()
	if !last {
		return
	}
	if err := os.RemoveAll(m.copy.Dir()); err != nil {
		e.c.Log.Warn("copy of a site's storage not removed", "site", site, "err", err)
	}
}

// dismiss ends a keeper.
func (e *Engine) dismiss(m *mirror) {
	if x := m.keeper; x != nil {
		m.keeper = nil
		go x.Stop(0)
	}
}

// user releases a copy once.
type user struct {
	once sync.Once
	e    *Engine
	site id.Site
	m    *mirror
}

func (u *user) Close() error {
	u.once.Do(func() { u.e.leave(u.site, u.m, 1) })
	return nil
}

// FetchStorage copies a site's storage to this process's disk, where StorageFolders lists it until the closer is
// closed. Calling it again copies the changes.
func (e *Engine) FetchStorage(ctx context.Context, site id.Site) (_ io.Closer, err error) {
	m, err := e.mirror(site, 1)
	if err != nil {
		return nil, err
	}
	u := &user{e: e, site: site, m: m}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := e.claimOf(ctx, site)
	if err != nil || c == nil {
		return u, err
	}
	// If another process writes to the volume, this one only reads it.
	writer := c.Annotations[markWriter]
	if err := e.keeping(ctx, m, *c, writer != "" && writer != e.c.Name, m.copy.Fetch); err != nil {
		return nil, fmt.Errorf("copy storage of %s: %w", site, noRoom(err))
	}
	return u, nil
}

// KeepStorage stores a changed copy in the volume, completely or not at all. It creates a volume if the site has none.
func (e *Engine) KeepStorage(ctx context.Context, site id.Site) error {
	m := e.mirrors.has(site)
	if m == nil {
		return nil // nothing was created or copied
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := runtime.Spec{Site: site}
	c, err := e.claimOf(ctx, site)
	if err == nil && c == nil {
		s.Limits.Storage, err = m.size(e.c.Storage.Size)
	}
	if err == nil { // even if it existed: the stored count is outdated
		_, err = e.claim(ctx, s)
	}
	if err == nil {
		c, err = e.claimOf(ctx, site)
	}
	if err == nil && c == nil {
		err = errors.New("the storage of this site is being deleted")
	}
	if err != nil {
		return err
	}
	err = e.keeping(ctx, m, *c, false, m.copy.Give)
	e.mirrors.mu.Lock()
	if m.users == 0 {
		e.dismiss(m)
	}
	e.mirrors.mu.Unlock()
	if errors.Is(err, stored.ErrFull) {
		return fault.New(fault.TooLarge, "storage_full", "The volume of the site's storage is full",
			"nothing of what is stored was changed; raise run.storageMiB, deploy, and try again")
	}
	if err != nil {
		return fmt.Errorf("store storage of %s: %w", site, err)
	}
	return nil
}

// size returns the size of a new volume for a copy, with room for further writes.
func (m *mirror) size(least int64) (n int64, err error) {
	err = filepath.Walk(m.copy.Dir(), func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size() + 4<<10
		}
		return err
	})
	return max(least, n+n/4+64<<20), err
}

// noRoom rephrases errors about a full disk or too much storage.
func noRoom(err error) error {
	if errors.Is(err, stored.ErrMuch) {
		return &fault.Error{
			Kind: fault.TooLarge, Message: "The site is too large for a backup",
			Details: "its storage has at most 1,000,000 files, 32 MiB of their paths, 256 GiB, and 200 levels of folders",
		}
	}
	if !disk.Full(err) {
		return err
	}
	return fault.New(fault.Unavailable, "disk_full", "The worker has no room for a copy of the site's storage",
		"ask the operator for a larger disk")
}

// StorageFolders lists the folders of a copy. It returns an error if the storage is only in a volume, and none for a
// site without storage.
func (e *Engine) StorageFolders(site id.Site) (map[string]string, error) {
	if m := e.mirrors.has(site); m != nil {
		dirs, err := m.copy.Folders()
		all := map[string]string{}
		for name, dir := range dirs {
			all[runtime.FolderOf(name)] = dir
		}
		return all, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	if c, err := e.claimOf(ctx, site); err != nil || c == nil {
		return nil, err
	}
	return nil, &fault.Error{Kind: fault.Unavailable, Message: "The site's files are in a volume of the cluster", Code: "storage_elsewhere"}
}

// MakeStorage creates a folder in the copy of a site's storage. KeepStorage stores it.
func (e *Engine) MakeStorage(_ context.Context, site id.Site, name string) (dir string, err error) {
	if name != "@sessions" && (name == "" || path.Clean("/"+name) != "/"+name || strings.ContainsRune(name, 0)) {
		return "", &fault.Error{Kind: fault.Invalid, Message: "Invalid storage folder", Received: name, Code: "invalid_storage"}
	}
	m, err := e.mirror(site, 0)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(m.copy.Dir(), runtime.StorageName(name))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", noRoom(err)
	}
	return dir, nil
}

// claimOf returns the claim of a site's own storage, or nil.
func (e *Engine) claimOf(ctx context.Context, site id.Site) (*core.PersistentVolumeClaim, error) {
	all, err := e.claims(ctx, site)
	for _, c := range all {
		if c.Annotations[markPreview] == "" {
			return &c, nil
		}
	}
	return nil, err
}

// keeping calls do with a connection to a claim's keeper, and starts one if none with the required access is running.
func (e *Engine) keeping(ctx context.Context, m *mirror, c core.PersistentVolumeClaim, reads bool, do func(io.ReadWriter) error) error {
	if m.keeper != nil && m.keeper.reads && !reads {
		m.keeper.Stop(0)
	}
	if m.keeper == nil || !m.keeper.runs() {
		m.keeper = nil
		x, err := e.startKeeper(ctx, c, reads)
		for range 3 {
			if errors.Is(err, errDisplaced) {
				x, err = e.startKeeper(ctx, c, reads)
			}
		}
		if err != nil {
			return fmt.Errorf("start a keeper of the volume: %w", explain(err))
		}
		m.keeper = x
	}
	conn, reply, err := m.keeper.ask(ctx, pod.Store, 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	if reply != pod.Yes {
		return errors.New("the keeper of the volume refuses")
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := do(patient{conn}); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// patient is a connection whose deadline each read and write extends.
type patient struct{ net.Conn }

func (p patient) Read(b []byte) (int, error) {
	_ = p.SetReadDeadline(time.Now().Add(silentKeeper))
	return p.Conn.Read(b)
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.SetWriteDeadline(time.Now().Add(silentKeeper))
	return p.Conn.Write(b)
}

// startKeeper starts a pod with a claim but without the site's program. A reading keeper doesn't take the claim from
// its writer.
func (e *Engine) startKeeper(ctx context.Context, c core.PersistentVolumeClaim, reads bool) (_ *program, err error) {
	site := id.Site(c.Annotations[markSite])
	uid, err := e.c.Users.UID(ctx, site)
	if err != nil {
		return nil, err
	}
	s := runtime.Spec{
		ID: "keeper-" + string(site), Site: site, Owner: id.Owner(c.Labels[labelOwner]), Limits: runtime.Limits{Memory: keeperMemory, CPUs: 1, Disk: 1 << 20},
	}
	k := kept{claim: c.Name, keeper: true, readOnly: reads}
	x, err := e.newProgram(ctx, s, fits{}, k)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.remove(x.name, 1)
			x.end(lost(err.Error()))
		}
	}()
	secret, err := e.secret(s, k, x.name, x.token, fits{})
	if err != nil {
		return nil, err
	}
	if secret, err = e.c.Client.CoreV1().Secrets(e.c.Namespace).Create(ctx, secret, meta.CreateOptions{}); err != nil {
		return nil, err
	}
	p := e.pod(s, secret, e.c.Images[0].Name, int64(uid))
	e.keep(p, k)
	keeps := &p.Spec.Containers[0]
	keeps.Command = []string{pod.EntryFile, "store"}
	keeps.VolumeMounts = append(keeps.VolumeMounts, core.VolumeMount{Name: storing, MountPath: pod.StorageDir, ReadOnly: reads})
	p.Spec.InitContainers = nil
	if reads {
		p.Spec.SchedulingGates = nil
	}
	if _, err := e.c.Client.CoreV1().Pods(e.c.Namespace).Create(ctx, p, meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	if !reads {
		if err := e.takeClaim(ctx, k, p.Name); err != nil {
			return nil, err
		}
	}
	if err := x.begin(ctx); err != nil {
		return nil, err
	}
	if !x.runs() {
		return nil, errors.New(x.Exit().Reason)
	}
	return x, nil
}

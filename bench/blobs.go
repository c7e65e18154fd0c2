package main

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/blob/s3test"
)

// blobs measures storing files in a bucket against a directory: alone, and as part of a deployment.
func (b *bench) blobs(w *world.World) error {
	server, err := s3test.Start(filepath.Join(b.dir, "s3"))
	if err != nil {
		return err
	}
	defer server.Stop()
	address, err := server.NewBucket()
	if err != nil {
		return err
	}
	type times struct{ write, read, again time.Duration }
	measure := func(at, cache string) (t times, err error) {
		s, err := blob.Open(at, blob.Options{Cache: filepath.Join(b.dir, cache)})
		if err != nil {
			return t, err
		}
		defer s.Close()
		const n = 1000
		var writes, reads, agains []time.Duration
		for range 5 {
			var all []blob.Digest
			start := time.Now()
			batch := s.Batch(b.ctx)
			for range n {
				body := make([]byte, 4096)
				rand.Read(body)
				d, err := batch.PutBytes(body)
				if err != nil {
					return t, err
				}
				all = append(all, d)
			}
			if err := batch.Flush(); err != nil {
				return t, err
			}
			writes = append(writes, time.Since(start)/n)
			for _, into := range []*[]time.Duration{&reads, &agains} {
				start := time.Now()
				for _, d := range all {
					if _, err := s.ReadAll(b.ctx, d, 1<<20); err != nil {
						return t, err
					}
				}
				*into = append(*into, time.Since(start)/n)
			}
		}
		return times{median(writes), median(reads), median(agains)}, nil
	}
	dir, err := measure(filepath.Join(b.dir, "blobs"), "unused")
	if err != nil {
		return err
	}
	bucket, err := measure(address, "cache")
	if err != nil {
		return err
	}
	b.timing("S3, one of 1,000 files of 4 KiB written together", bucket.write, dir.write, "directory", "")
	b.timing("S3, one file of 4 KiB read for the first time", bucket.read, dir.read, "directory", "")
	b.timing("S3, the same read again", bucket.again, dir.again, "directory", "")

	onDisk, again, _, err := b.deployments(w)
	if err != nil {
		return fmt.Errorf("with a directory: %w", err)
	}
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	w.Flags = append(w.Flags, "--blobs", address)
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	inBucket, changed, _, err := b.deployments(w)
	if err != nil {
		return fmt.Errorf("with a bucket: %w", err)
	}
	b.timing("S3, deploy, new site of 100 files", median(inBucket), median(onDisk), "directory", "")
	b.timing("S3, deploy, 100 files all changed", median(changed), median(again), "directory", "")
	return nil
}

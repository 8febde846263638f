package store

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	replicasDir   = "replicas"
	reportSuffix  = ".json"
	largestReport = 64 << 10
)

// DirReplicas is a Replicas in the directory "replicas" of a DirStore's directory,
// for all processes of one machine: a JSON file for each, whose name is that of the
// replica and something random. So two that have the same name, which is the
// machine's where nobody gives another, are both waited for.
//
// The file of a process that was killed is removed by its successor of the same
// name, once it has been silent for 4*ReportInterval; one that lives and was stopped
// for so long writes it again. Files of processes that have been away for a day and
// that nobody waits for any more are removed by any other that lists; a file that
// cannot be understood is one of those that are waited for.
type DirReplicas struct {
	// LeafLife is how long a serving certificate lasts: nobody is waited for longer
	// than that after having been heard of, and for DefaultLeafLife at least. Zero is
	// a year, for whoever does not know. It is set before use.
	LeafLife time.Duration

	dir, replica string
	// file is that of this process.
	file  string
	now   func() time.Time
	stale staleReports
	// found is what the last List found.
	found atomic.Pointer[locations]
}

var _ Replicas = (*DirReplicas)(nil)

// NewDirReplicas looks at nothing yet. The replica is the name of this process, as
// people know it; without a name it looks on: it cannot
// report, and List removes nothing. Now is the time by the clock on the wall; nil
// is time.Now.
func NewDirReplicas(dir, replica string, now func() time.Time) *DirReplicas {
	d := &DirReplicas{dir: filepath.Join(dir, replicasDir), replica: replica, now: now}
	end := "-" + newInstance() + reportSuffix
	d.file = filepath.Join(d.dir, shortName("", replica, longestName-len(end))+end)
	return d
}

// reportFile is what a file holds. Times are texts, since those of somebody else
// may be none.
type reportFile struct {
	Replica  string  `json:"replica"`
	Issuer   *string `json:"issuer"`
	SHA256   string  `json:"sha256,omitempty"`
	NotAfter string  `json:"notAfter,omitempty"`
	Seen     string  `json:"seen"`
	Version  string  `json:"version,omitempty"`
}

// FileOf is the file in which the last List found the report of a replica: of
// several, that of the one which has been silent for longest. It is "" if there was
// none.
func (d *DirReplicas) FileOf(replica string) string {
	if found := d.found.Load(); found != nil {
		return (*found)[replica].name
	}
	return ""
}

// Report implements Replicas.
func (d *DirReplicas) Report(ctx context.Context, r *rotation.Report) error {
	report := &reportFile{Replica: d.replica, Issuer: &r.Issuer, Version: r.Version, Seen: clock.Wall(d.now).UTC().Format(time.RFC3339Nano)}
	if r.Issuer != "" {
		report.SHA256, report.NotAfter = r.SHA256, clock.Stamp(r.NotAfter)
	}
	content, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.MkdirAll(d.dir, sharedDir)
	}
	if err == nil {
		err = replaceFile(d.file, append(content, '\n'), privateFile)
	}
	if err != nil {
		return fileError("file "+d.file, "write", err)
	}
	d.stale.remove(ctx, clock.Monotonic(d.now), d.findStale)
	return nil
}

// findStale are the files of others with our name, seen from when ours was
// written. Whatever cannot be removed is waited for until its certificate ends.
func (d *DirReplicas) findStale() ([]staleReport, error) {
	own, err := os.Stat(d.file)
	if err != nil {
		return nil, err
	}
	var found []staleReport
	err = d.each(func(file string, t *storedReport) {
		if t.replica == d.replica && file != d.file {
			found = append(found, staleReport{silent: own.ModTime().Sub(t.written), remove: func(context.Context) {
				if info, err := os.Stat(file); err == nil && info.ModTime().Equal(t.written) {
					_ = os.Remove(file)
				}
			}})
		}
	})
	return found, err
}

// List implements Replicas.
func (d *DirReplicas) List(context.Context) ([]rotation.Report, error) {
	now := clock.Wall(d.now)
	var (
		reports []rotation.Report
		removed int
		found   = locations{}
	)
	err := d.each(func(file string, t *storedReport) {
		report, over := t.report(now, d.LeafLife)
		if !over {
			reports = append(reports, report)
			found.add(&report, file)
			return
		}
		if removed++; removed <= tidied && d.replica != "" {
			_ = os.Remove(file) // one that has come back in the meantime writes it again
		}
	})
	if err != nil {
		return nil, err
	}
	d.found.Store(&found)
	sortReports(reports)
	return reports, nil
}

// each reads all files.
func (d *DirReplicas) each(do func(file string, t *storedReport)) error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("directory "+d.dir, "read", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || strings.HasPrefix(name, ".") || !strings.HasSuffix(name, reportSuffix) {
			continue
		}
		file := filepath.Join(d.dir, name)
		found, err := readReport(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has left
		}
		if err != nil {
			return fileError("file "+file, "read", err)
		}
		do(file, found)
	}
	return nil
}

// readReport reads a file of somebody else.
func readReport(file string) (*storedReport, error) {
	f, err := os.Open(file) //nolint:gosec // in a directory that whoever starts the program names
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, largestReport))
	if err != nil {
		return nil, err
	}
	return parseReport(strings.TrimSuffix(filepath.Base(file), reportSuffix), content, info.ModTime()), nil
}

// parseReport is what a file says that was written at a time.
func parseReport(place string, content []byte, written time.Time) *storedReport {
	var r reportFile
	if err := json.Unmarshal(content, &r); err != nil {
		r = reportFile{}
	}
	t := &storedReport{place: place, replica: r.Replica, sha256: r.SHA256, notAfter: r.NotAfter, version: r.Version, issuer: r.Issuer, written: written}
	if seen, err := time.Parse(time.RFC3339, r.Seen); err == nil {
		t.claimed = seen
	}
	return t
}

// Leave implements Replicas.
func (d *DirReplicas) Leave(context.Context) error {
	if err := os.Remove(d.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("file "+d.file, "remove", err)
	}
	return nil
}

package debug

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

const (
	// RecordingPath is the path of the list of files of the recording. Below it are the files.
	RecordingPath = "/debug/recording"
	// fileTimeout bounds the time of sending one file, which may be long after the write
	// timeout of the listener.
	fileTimeout = time.Hour
)

// Recording is the answer to GET of RecordingPath.
type Recording struct {
	// Files are in the order of their names, which is that of time.
	Files []RecordingFile `json:"files"`
}

// RecordingFile is a segment of a recording.
type RecordingFile struct {
	Name string `json:"name"`
	// Bytes is the size. That of a segment which is being written grows.
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
}

// recording serves the directory of a recording, and nothing else that is in it.
type recording struct{ dir string }

// list answers RecordingPath.
func (d recording) list(w http.ResponseWriter, r *http.Request) {
	if !isRead(w, r) {
		return
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "the recording cannot be read: "+patherr.Cause(err).Error(), http.StatusInternalServerError)
		return
	}
	list := Recording{Files: []RecordingFile{}}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || !record.IsSegmentName(entry.Name()) {
			continue // it was just removed, or is not of the recording
		}
		list.Files = append(list.Files, RecordingFile{Name: entry.Name(), Bytes: info.Size(), Modified: info.ModTime().UTC()})
	}
	slices.SortFunc(list.Files, func(a, b RecordingFile) int { return cmp.Compare(a.Name, b.Name) })
	w.Header().Set("Content-Type", "application/json")
	if err := jsonout.Encode(w, "", &list); err != nil {
		return // the caller has closed the connection
	}
}

// file answers the path of a file below RecordingPath.
func (d recording) file(w http.ResponseWriter, r *http.Request) {
	if !isRead(w, r) {
		return
	}
	name := r.PathValue("name")
	if !record.IsSegmentName(name) {
		http.Error(w, fmt.Sprintf("%.100q is not the name of a file of the recording (hint: GET %s lists them)", name, RecordingPath), http.StatusNotFound)
		return
	}
	file, info, err := d.open(name)
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, fs.ErrNotExist) {
			status = http.StatusNotFound // old segments are removed
		}
		http.Error(w, fmt.Sprintf("%q cannot be read: %s", name, patherr.Cause(err).Error()), status)
		return
	}
	defer file.Close() //nolint:errcheck // it was only read
	// The listener is made for short answers. A response writer of a test has no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fileTimeout))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), file)
}

// open opens a file of the directory. Links that lead out of it are not followed.
func (d recording) open(name string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // cause takes the reason
	}
	defer root.Close() //nolint:errcheck // nothing was written
	info, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // cause takes the reason
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is not a regular file")
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // cause takes the reason
	}
	return file, info, nil
}

// isRead reports whether the method reads, and otherwise answers.
func isRead(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
	return false
}

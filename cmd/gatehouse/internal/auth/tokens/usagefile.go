package tokens

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// UsageFile is the file in a server's state directory that tells when tokens were
// last used. It holds ids and times.
const UsageFile = "token-usage.json"

// maxUsageBytes bounds what is read: 100,000 of the longest ids, several times.
const maxUsageBytes = 64 << 20

// usageDocument is what the file holds.
type usageDocument struct {
	// LastUsed is when a token was last used, by its id.
	LastUsed map[string]time.Time `json:"lastUsed"`
}

// readUsage reads the file. If there is none, nothing was used.
func readUsage(file string) (map[string]time.Time, error) {
	f, err := os.Open(file) // #nosec G304 -- the operator names the directory
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]time.Time{}, nil
	}
	if err != nil {
		return nil, err
	}
	document, err := decodeUsage(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return document.LastUsed, nil
}

// decodeUsage reads one document and nothing behind it.
func decodeUsage(from io.Reader) (usageDocument, error) {
	var document usageDocument
	limited := &io.LimitedReader{R: from, N: maxUsageBytes + 1}
	decoder := json.NewDecoder(limited)
	err := decoder.Decode(&document)
	if limited.N <= 0 {
		return document, fmt.Errorf("is larger than %d MiB", maxUsageBytes>>20)
	}
	if err != nil {
		return document, fmt.Errorf("not written by Gatehouse: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return document, errors.New("not written by Gatehouse: there is text after the document")
	}
	return document, nil
}

// writeUsage replaces the file, whole or not at all. The order is any.
func writeUsage(file string, used iter.Seq2[string, time.Time]) error {
	return replace(file, func(to io.Writer) error {
		// As json.Marshal would write it, without having all of it in memory.
		w := bufio.NewWriter(to)
		_, err := w.WriteString(`{"lastUsed":{`)
		singleLine := []byte("\n")
		for id, at := range used {
			singleLine = strconv.AppendQuote(singleLine, id)
			singleLine = append(singleLine, ':', '"')
			singleLine = at.AppendFormat(singleLine, time.RFC3339)
			singleLine = append(singleLine, '"')
			if _, err = w.Write(singleLine); err != nil {
				return err
			}
			singleLine = append(singleLine[:0], ",\n"...)
		}
		_, end := w.WriteString("\n}}\n")
		return errors.Join(err, end, w.Flush())
	})
}

// replace writes a file that only its owner may read in place of what is there.
func replace(file string, write func(io.Writer) error) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(temporary), temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%q is not a directory", dir)
	}
	return err
}

// writable returns why files cannot be written into a directory.
func writable(dir string) error {
	probe, err := os.CreateTemp(dir, "."+UsageFile+"-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

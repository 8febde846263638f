package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Threshold is a value of --fail-on: how many there may be of something.
type Threshold struct {
	Name string
	most int64
}

// Thresholds is --fail-on: NAME or NAME=N, repeatable.
type Thresholds struct {
	// Names are the names that are accepted, and What is what is counted, as "reviews".
	Names []string
	What  string

	list []Threshold
}

// List returns the thresholds that were given. Those of defaults apply with a limit of zero unless one of their name is
// given.
func (t *Thresholds) List(defaults ...string) []Threshold {
	var all []Threshold
	for _, name := range defaults {
		if !slices.ContainsFunc(t.list, func(one Threshold) bool { return one.Name == name }) {
			all = append(all, Threshold{Name: name})
		}
	}
	return append(all, t.list...)
}

// Given reports whether any threshold was given.
func (t *Thresholds) Given() bool { return len(t.list) > 0 }

// String implements pflag.Value.
func (t *Thresholds) String() string {
	parts := make([]string, len(t.list))
	for i, one := range t.list {
		parts[i] = one.Name + "=" + one.Limit()
	}
	return strings.Join(parts, ",")
}

// Type implements pflag.Value.
func (*Thresholds) Type() string { return "name[=N]" }

// Set implements pflag.Value. It adds a threshold.
func (t *Thresholds) Set(value string) error {
	name, limit, limited := strings.Cut(value, "=")
	if !slices.Contains(t.Names, name) {
		return fmt.Errorf("must be NAME or NAME=N, and NAME one of %s", strings.Join(t.Names, ", "))
	}
	one := Threshold{Name: name}
	if limited {
		most, err := strconv.ParseUint(limit, 10, 63)
		if err != nil {
			return errors.New("the limit must be a number of " + t.What)
		}
		one.most = int64(most)
	}
	t.list = append(slices.DeleteFunc(t.list, func(other Threshold) bool { return other.Name == name }), one)
	return nil
}

// Limit returns what is allowed.
func (t Threshold) Limit() string { return strconv.FormatInt(t.most, 10) }

// IsExceeded reports whether n is more than is allowed.
func (t Threshold) IsExceeded(n int64) bool { return n > t.most }

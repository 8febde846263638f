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
	// most is how many are allowed, or how many percent.
	most    float64
	percent bool
}

// Thresholds is --fail-on: NAME, NAME=N or NAME=N%, repeatable.
type Thresholds struct {
	// Names are the names that are accepted, and What is what is counted, as "reviews".
	Names []string
	What  string
	list  []Threshold
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
func (*Thresholds) Type() string { return "name[=N|N%]" }

// Set implements pflag.Value. It adds a threshold.
func (t *Thresholds) Set(value string) error {
	name, limit, limited := strings.Cut(value, "=")
	if !slices.Contains(t.Names, name) {
		return fmt.Errorf("must be NAME, NAME=N or NAME=N%%, and NAME one of %s", strings.Join(t.Names, ", "))
	}
	one := Threshold{Name: name}
	if limited {
		number, percent := strings.CutSuffix(limit, "%")
		most, err := strconv.ParseFloat(number, 64)
		if strings.Trim(number, "0123456789.") != "" || err != nil || percent && most > 100 || !percent && strings.Contains(number, ".") {
			return errors.New("the limit must be a number of " + t.What + ", or a percentage from 0% to 100%")
		}
		one.most, one.percent = most, percent
	}
	t.list = append(slices.DeleteFunc(t.list, func(other Threshold) bool { return other.Name == name && other.percent == one.percent }), one)
	return nil
}

// Limit returns what is allowed.
func (t Threshold) Limit() string {
	text := strconv.FormatFloat(t.most, 'f', -1, 64)
	if t.percent {
		text += "%"
	}
	return text
}

// IsExceeded reports whether n of all are more than is allowed.
func (t Threshold) IsExceeded(n, all int64) bool {
	if t.percent {
		return 100*float64(n) > t.most*float64(all)
	}
	return float64(n) > t.most
}

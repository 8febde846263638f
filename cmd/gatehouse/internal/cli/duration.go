package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const day = 24 * time.Hour

var (
	errDuration = errors.New("must be a duration such as 90s, 15m, 12h, 30d or 1d12h")
	errTooLong  = errors.New("must be less than 106752d")
)

// ParseDuration parses a duration as time.ParseDuration does, which may begin with days of 24 hours: "30d", "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	before, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	number, negative := strings.CutPrefix(before, "-")
	if strings.Trim(number, "0123456789.") != "" || strings.ContainsAny(rest, "+-") {
		return 0, errDuration
	}
	days, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, errDuration
	}
	var parsed time.Duration
	if rest != "" {
		if parsed, err = time.ParseDuration(rest); err != nil {
			return 0, errDuration
		}
	}
	if days*float64(day)+float64(parsed) >= math.MaxInt64 {
		return 0, errTooLong
	}
	if parsed += time.Duration(days * float64(day)); negative {
		parsed = -parsed
	}
	return parsed, nil
}

// ParseTime returns a time that is given as such, or as a duration before now.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := ParseDuration(text)
	if err != nil || ago < 0 {
		return time.Time{}, errors.New("must be a time such as 2026-11-20T12:00:00Z, or a duration before now such as 90m, 24h or 7d")
	}
	return now.Add(-ago), nil
}

// FormatDuration returns a duration as ParseDuration accepts it, without parts that are zero: "30d", "12h", "15m". Less than two days, and
// durations that are not a number of days, have no days.
func FormatDuration(d time.Duration) string {
	if d%day == 0 && d.Abs() >= 2*day {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []struct{ end, keep string }{{"m0s", "m"}, {"h0m", "h"}} {
		if start, found := strings.CutSuffix(text, zero.end); found {
			text = start + zero.keep
		}
	}
	return text
}

// daysValue is the value of a duration flag that accepts days.
type daysValue struct{ pflag.Value }

// Set sets the value.
func (v daysValue) Set(text string) error {
	d, err := ParseDuration(text)
	if err != nil {
		return err
	}
	return v.Value.Set(d.String())
}

// adaptDurationFlag makes a flag accept days and show its default without parts that are zero.
func adaptDurationFlag(flag *pflag.Flag) {
	flag.Value = daysValue{flag.Value}
	d, err := time.ParseDuration(flag.DefValue)
	switch {
	case err != nil:
	case d == 0:
		flag.DefValue = "" // help shows none
	default:
		flag.DefValue = FormatDuration(d)
	}
}

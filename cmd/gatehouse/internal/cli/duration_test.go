package cli

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30d": 30 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "0d": 0, "0": 0, "-1d1h": -25 * time.Hour, "+2h": 2 * time.Hour,
		"90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "100ms": 100 * time.Millisecond, "-5s": -5 * time.Second, "106751d": 106751 * day,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "+2d", "30", "30 d", "1d-12h", "1d+1h", "--1d", "1h1d", "1d1d", "d12h", ".d", "1e3d", "0x1d", "infd", "nand", "1d12", "30D", "1w", "106752d", "-106752d", "106751d24h", "1_0d",
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %s", text, got)
		}
	}
}

// FuzzParseDuration compares with time.ParseDuration where there are no days, and reads back what FormatDuration writes.
func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"30d", "1d12h", "-1.5d", "1h30m", "106751d23h", "9223372036854775807ns", "d", "1e9d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseDuration(text)
		if want, wrong := time.ParseDuration(text); wrong == nil && (err != nil || got != want) {
			t.Fatalf("%q: got %s, %v, want %s", text, got, err, want)
		}
		if err != nil {
			return
		}
		if back, err := ParseDuration(FormatDuration(got)); err != nil || back != got {
			t.Fatalf("%q is %s, written as %q: got %s, %v", text, got, FormatDuration(got), back, err)
		}
	})
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		30 * day: "30d", 2 * day: "2d", day: "24h", 36 * time.Hour: "36h", 15 * time.Minute: "15m", 90 * time.Minute: "1h30m", 0: "0s",
		time.Hour + time.Second: "1h0m1s", 10 * time.Second: "10s", -2 * day: "-2d", 100 * time.Millisecond: "100ms",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]string{
		"2026-11-20T12:00:00Z": "2026-11-20T12:00:00Z", "2026-11-20T12:00:00+01:00": "2026-11-20T11:00:00Z", "24h": "2026-11-22T12:00:00Z", "7d": "2026-11-16T12:00:00Z", "-1h": "", "": "", "today": "",
	} {
		got, err := ParseTime(value, now)
		if (err != nil) != (want == "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q is %s, %v; want %s", value, got, err, want)
		}
	}
}

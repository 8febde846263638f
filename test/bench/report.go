package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// report is everything that a run found out. Its JSON form is what -o json
// prints; times in it are in nanoseconds, memory is in bytes.
type report struct {
	Started     time.Time         `json:"started"`
	Elapsed     time.Duration     `json:"elapsedNs"`
	Machine     machine           `json:"machine"`
	Versions    map[string]string `json:"versions"`
	Environment map[string]string `json:"environment,omitempty"` // of variables that the servers inherit and Go heeds
	Rounds      int               `json:"rounds"`                // that were completed
	Scenarios   []scenarioReport  `json:"scenarios"`
	Memory      []serverMemory    `json:"memory"`

	Compilations []compileReport `json:"compilations,omitempty"`

	Bars   []barReport `json:"bars"`
	Passed bool        `json:"passed"` // every bar was measured and held
}

// machine is where a run happened.
type machine struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"` // of the driver
}

// scenarioReport is one scenario on all of its servers.
type scenarioReport struct {
	Name        string             `json:"name"`
	Path        string             `json:"path"`
	Protocol    string             `json:"protocol"`
	Concurrency int                `json:"concurrency"`
	BodyBytes   int                `json:"bodyBytes"`
	Servers     map[string]*series `json:"servers"`
}

// series is what one server did in one scenario.
type series struct {
	CPUPerRequest time.Duration `json:"cpuPerRequestNs"` // median of the samples
	Ratio         float64       `json:"ratio"`           // median of the ratios to the null webhook in the same round
	P50           time.Duration `json:"p50Ns"`           // median of the samples
	P99           time.Duration `json:"p99Ns"`           // median of the samples

	AllocationsPerRequest float64 `json:"allocationsPerRequest"` // mean over all samples
	BytesPerRequest       float64 `json:"bytesPerRequest"`       // allocated; mean over all samples

	Samples []sample `json:"samples"`
}

// sample is one round of a series.
type sample struct {
	Round    int           `json:"round"`
	Requests int           `json:"requests"`
	CPU      time.Duration `json:"cpuNs"` // of the server, for all requests
	Wall     time.Duration `json:"wallNs"`
	P50      time.Duration `json:"p50Ns"`
	P99      time.Duration `json:"p99Ns"`
	allocations
}

// perRequest is the processor time that one request took.
func (s sample) perRequest() time.Duration {
	return s.CPU / time.Duration(s.Requests)
}

// serverMemory is the memory of a server after all rounds.
type serverMemory struct {
	Server        string `json:"server"`
	Configuration string `json:"configuration,omitempty"`
	memory
}

// barReport is a bar and whether it held.
type barReport struct {
	What     string  `json:"what"`
	Limit    float64 `json:"limit"`
	Measured float64 `json:"measured"` // 0 if it was not measured
	Result   string  `json:"result"`   // pass, fail or not measured
}

// The results of a bar.
const (
	resultPass        = "pass"
	resultFail        = "fail"
	resultNotMeasured = "not measured"
)

// newReport returns a report without measurements.
func newReport(selected []scenario) *report {
	r := &report{
		Started:     time.Now().UTC(),
		Machine:     machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0)},
		Versions:    map[string]string{"go": runtime.Version()},
		Environment: map[string]string{},
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"} {
		if value, set := os.LookupEnv(name); set {
			r.Environment[name] = value
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "sigs.k8s.io/controller-runtime" || module.Path == "k8s.io/api" {
				r.Versions[module.Path] = module.Version
			}
		}
	}
	for _, s := range selected {
		r.Scenarios = append(r.Scenarios, scenarioReport{
			Name: s.name, Path: s.path, Protocol: s.protocol, Concurrency: s.concurrency,
			BodyBytes: len(s.body.text), Servers: make(map[string]*series),
		})
	}
	return r
}

// add notes a sample of the scenario with the number.
func (r *report) add(number int, kind string, sample sample) {
	servers := r.Scenarios[number].Servers
	if servers[kind] == nil {
		servers[kind] = new(series)
	}
	servers[kind].Samples = append(servers[kind].Samples, sample)
}

// finish computes medians and bars from samples and memory.
func (r *report) finish() {
	r.Elapsed = time.Since(r.Started)
	for _, s := range r.Scenarios {
		for _, series := range s.Servers {
			series.CPUPerRequest = median(series.Samples, sample.perRequest)
			series.P50 = median(series.Samples, func(s sample) time.Duration { return s.P50 })
			series.P99 = median(series.Samples, func(s sample) time.Duration { return s.P99 })
			series.AllocationsPerRequest, series.BytesPerRequest = allocationsPerRequest(series.Samples)
			series.Ratio = medianRatio(series.Samples, s.Servers[nullServer].Samples)
		}
	}
	r.Bars = nil
	for _, b := range bars() {
		what, measured := b.Scenario+", ratio to null", 0.0
		if series := r.series(b.Scenario); series != nil {
			measured = series.Ratio
		}
		if b.To != "" {
			what, measured = b.Scenario+", ratio to "+b.To, 0
			if series, base := r.series(b.Scenario), r.series(b.To); series != nil && base != nil {
				measured = medianRatio(series.Samples, base.Samples)
			}
		}
		r.Bars = append(r.Bars, newBarReport(what, b.Limit, measured))
	}
	most := 0.0
	for _, m := range r.Memory {
		if m.Server == gatehouseServer && !slices.Contains([]string{hundredPolicies, manyPolicies, manyTokens}, m.Configuration) {
			most = max(most, mebibytes(m.Resident))
		}
	}
	r.Bars = append(r.Bars, newBarReport("resident memory after the run, MiB", memoryLimit, most))
	added := 0.0
	if none, hundred := r.resident(noPolicies), r.resident(hundredPolicies); none > 0 && hundred > 0 {
		added = max(mebibytes(hundred-none), 0.01) // 0 would be none measured
	}
	r.Bars = append(r.Bars, newBarReport("resident memory of 100 policies over none, MiB", hundredLimit, added))
	added = 0
	if one, many := r.resident(onePolicy), r.resident(manyTokens); one > 0 && many > 0 {
		added = max(mebibytes(many-one), 0.01)
	}
	r.Bars = append(r.Bars, newBarReport("resident memory of 100,000 access tokens, MiB", tokensLimit, added))
	for _, c := range compilations(nil) {
		all, change := 0.0, 0.0
		for _, measured := range r.Compilations {
			if measured.Name == c.name {
				all, change = measured.All.Seconds(), float64(measured.Change)/float64(measured.All)
			}
		}
		r.Bars = append(r.Bars,
			newBarReport(c.name+", seconds on one processor", compileLimit, all),
			newBarReport(c.name+", after a change of one, ratio to all", changeLimit, change))
	}
	r.Passed = !slices.ContainsFunc(r.Bars, func(b barReport) bool { return b.Result != resultPass })
}

// resident is the memory of Gatehouse with a configuration, or 0 if it was not
// measured.
func (r *report) resident(configuration string) int64 {
	for _, m := range r.Memory {
		if m.Server == gatehouseServer && m.Configuration == configuration {
			return m.Resident
		}
	}
	return 0
}

// series is what Gatehouse did in the scenario, or nil if it was not measured.
func (r *report) series(scenario string) *series {
	for _, s := range r.Scenarios {
		if s.Name == scenario {
			return s.Servers[gatehouseServer]
		}
	}
	return nil
}

// newBarReport compares; a measurement of 0 is none.
func newBarReport(what string, limit, measured float64) barReport {
	result := resultPass
	switch {
	case measured == 0:
		result = resultNotMeasured
	case measured > limit:
		result = resultFail
	}
	return barReport{What: what, Limit: limit, Measured: measured, Result: result}
}

// median returns the median of a quantity of the samples, and 0 of none. Of an
// even number it is the mean of the two in the middle.
func median[T time.Duration | float64, S any](samples []S, quantity func(S) T) T {
	values := make([]T, 0, len(samples))
	for _, s := range samples {
		values = append(values, quantity(s))
	}
	slices.Sort(values)
	middle := len(values) / 2
	switch {
	case len(values) == 0:
		return 0
	case len(values)%2 == 1:
		return values[middle]
	default:
		return (values[middle-1] + values[middle]) / 2
	}
}

// medianRatio returns the median over the rounds of the ratio of the processor
// times per request of two servers. Rounds that only one of them has, and
// rounds in which the base used no measurable time, do not count.
func medianRatio(samples, base []sample) float64 {
	var ratios []float64
	for _, s := range samples {
		at := slices.IndexFunc(base, func(b sample) bool { return b.Round == s.Round })
		if at >= 0 && base[at].perRequest() > 0 {
			ratios = append(ratios, float64(s.perRequest())/float64(base[at].perRequest()))
		}
	}
	return median(ratios, func(r float64) float64 { return r })
}

// percentile returns the smallest of the sorted values that at least p percent
// of them do not exceed (nearest rank), and 0 of none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

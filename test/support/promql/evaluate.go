package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Evaluation is what is evaluated, on what. The first samples are at the time 0.
type Evaluation struct {
	// Series are as promtool writes them: `name{label="value"} 0+1x10 _ stale`.
	Series []string `json:"series"`
	// Interval is the time between two samples and between two evaluations.
	Interval string `json:"interval"`
	// Lasts is the time of the last evaluation.
	Lasts string `json:"lasts"`
	// Alerts are evaluated at each time, and Queries at the last one.
	Alerts  []Alert  `json:"alerts"`
	Queries []string `json:"queries"`
}

// Alert is a rule.
type Alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Result is what came of it.
type Result struct {
	Firing []Firing `json:"firing"`
	// Errors are of queries and of alerts, with the expression.
	Errors []string `json:"errors"`
}

// Firing is a time in which an alert fired with the same labels.
type Firing struct {
	// Rule is the alert's place in the list, which its name need not tell.
	Rule int    `json:"rule"`
	From string `json:"from"`
	// Until is the first time at which it did no more, empty if there was none.
	Until string `json:"until"`
	// Labels are all that it has, and Annotations those of the first time.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func evaluate(ctx context.Context, e Evaluation) (Result, error) {
	interval, err := model.ParseDuration(e.Interval)
	if err != nil {
		return Result{}, err
	}
	lasts, err := model.ParseDuration(e.Lasts)
	if err != nil {
		return Result{}, err
	}
	samples, err := newSeries(e.Series, time.Duration(interval))
	if err != nil {
		return Result{}, err
	}
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 1e7, Timeout: time.Minute, Parser: syntax,
		// As Prometheus has it when nobody says otherwise.
		LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
	})
	query := rules.EngineQueryFunc(engine, samples)
	var result Result
	for i, a := range e.Alerts {
		rule, err := a.rule()
		if err != nil {
			return Result{}, err
		}
		list, err := firings(ctx, rule, query, time.Duration(interval), time.Duration(lasts))
		if err != nil {
			result.Errors = append(result.Errors, fmt.Sprintf("%s: %v", a.Alert, err))
		}
		for _, f := range list {
			f.Rule = i
			result.Firing = append(result.Firing, f)
		}
	}
	for _, text := range e.Queries {
		_, err := query(ctx, text, time.UnixMilli(0).Add(time.Duration(lasts)))
		if err != nil {
			result.Errors = append(result.Errors, fmt.Sprintf("%s: %v", text, err))
		}
	}
	return result, nil
}

func (a Alert) rule() (*rules.AlertingRule, error) {
	expr, err := syntax.ParseExpr(a.Expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Alert, err)
	}
	var hold model.Duration
	if a.For != "" {
		hold, err = model.ParseDuration(a.For)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Alert, err)
		}
	}
	return rules.NewAlertingRule(a.Alert, expr, time.Duration(hold), 0, labels.FromMap(a.Labels), labels.FromMap(a.Annotations),
		labels.EmptyLabels(), "", true, slog.New(slog.NewTextHandler(os.Stderr, nil))), nil
}

// firings are the times in which a rule fires.
func firings(ctx context.Context, rule *rules.AlertingRule, query rules.QueryFunc, interval, lasts time.Duration) ([]Firing, error) {
	var list []Firing
	open := map[uint64]int{} // into list, by the hash of the labels
	for at := time.Duration(0); at <= lasts; at += interval {
		_, err := rule.Eval(ctx, 0, time.UnixMilli(0).Add(at), query, &url.URL{}, 0)
		if err != nil {
			return list, fmt.Errorf("after %s: %w", model.Duration(at), err)
		}
		still := map[uint64]int{}
		active := rule.ActiveAlerts()
		slices.SortFunc(active, func(a, b *rules.Alert) int { return labels.Compare(a.Labels, b.Labels) })
		for _, alert := range active {
			if alert.State != rules.StateFiring {
				continue
			}
			hash := alert.Labels.Hash()
			i, is := open[hash]
			if !is {
				i = len(list)
				list = append(list, Firing{From: model.Duration(at).String(), Labels: alert.Labels.Map(), Annotations: alert.Annotations.Map()})
			}
			still[hash] = i
		}
		for hash, i := range open {
			if _, is := still[hash]; !is {
				list[i].Until = model.Duration(at).String()
			}
		}
		open = still
	}
	return list, nil
}

// series are kept in memory, and are a storage.Queryable.
type series []storage.Series

func newSeries(list []string, interval time.Duration) (series, error) {
	var s series
	for _, text := range list {
		name, values, err := syntax.ParseSeriesDesc(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		if slices.ContainsFunc(s, func(other storage.Series) bool { return labels.Equal(other.Labels(), name) }) {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		s = append(s, storage.NewListSeries(name, samples(values, interval)))
	}
	return s, nil
}

func samples(values []parser.SequenceValue, interval time.Duration) []chunks.Sample {
	var list []chunks.Sample
	for i, v := range values {
		if !v.Omitted {
			list = append(list, sample{at: int64(i) * interval.Milliseconds(), value: v.Value})
		}
	}
	return list
}

// Querier implements storage.Queryable.
func (s series) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(sorted bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, one := range s {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Labels().Get(m.Name)) }) {
				found = append(found, one)
			}
		}
		if sorted {
			slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		}
		return &set{series: found}
	}}, nil
}

// sample is a number at a time, and implements chunks.Sample.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// set is what a selection found, and implements storage.SeriesSet.
type set struct{ at, series series }

func (s *set) Next() bool {
	if len(s.series) == 0 {
		return false
	}
	s.at, s.series = s.series[:1], s.series[1:]
	return true
}

func (s *set) At() storage.Series                { return s.at[0] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

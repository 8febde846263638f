package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
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
	samples, err := promqltest.NewLazyLoader(fmt.Sprintf("load %s\n  %s", e.Interval, strings.Join(e.Series, "\n  ")),
		// As Prometheus has it when nobody says otherwise.
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return Result{}, err
	}
	defer samples.Close()
	samples.WithSamplesTill(time.UnixMilli(0).Add(time.Duration(lasts)), func(failed error) { err = failed })
	if err != nil {
		return Result{}, err
	}
	query := rules.EngineQueryFunc(samples.QueryEngine(), samples.Queryable())
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

package configuration

import (
	"errors"
	"log/slog"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// logDiagnostics logs each diagnostic on a line of its own.
func logDiagnostics(log *slog.Logger, err error) {
	list, ok := errors.AsType[diagnostic.List](err)
	if !ok {
		// Logged when a configuration has an error, once for each error and again every ten minutes. The active configuration stays.
		log.Error("configuration error", "error", err.Error())
		return
	}
	for _, f := range limitPerResource(list) {
		logDiagnostic(log, f)
	}
}

func logDiagnostic(log *slog.Logger, f diagnostic.Diagnostic) {
	f = f.Redacted()
	write, message := log.Error, "configuration error"
	if f.Severity == diagnostic.Warning {
		write, message = log.Warn, "configuration warning"
	}
	write(message, "source", f.Source, "object", f.Object, "field", f.Field, "finding", f.Message, "hint", f.Hint)
}

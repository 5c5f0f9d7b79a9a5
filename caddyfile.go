package slidingwindow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("sliding_window", parseGlobal)
	httpcaddyfile.RegisterHandlerDirective("sliding_window", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("sliding_window", httpcaddyfile.Before, "redir")
}

func parseGlobal(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // to the option's name, for the line
		return nil, d.Err("the global option sliding_window is given twice; keep one")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "sliding_window", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Syntax:
//
//	sliding_window {
//		store    <name> ...
//		on_error local|allow|deny {
//			share                       # with local
//		}
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume option name
	if d.NextArg() {
		return suggest.ArgErr(d)
	}
	seen := make(suggest.Seen)
	for d.NextBlock(0) {
		if err := seen.Once(d); err != nil {
			return err
		}
		var err error
		switch d.Val() {
		case "store":
			a.StoreRaw, err = parseStore(d)
		case "on_error":
			err = parseOnError(d, &a.OnError, &a.Share)
		default:
			err = known().Unknown(d, suggest.InGlobal)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseDirective(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h := new(Handler)
	if err := h.UnmarshalCaddyfile(helper.Dispenser); err != nil {
		return h, err
	}
	return h, h.checkOthers(helper.State)
}

// checkOthers refuses a zone that differs from one of the same name in another handler of the Caddyfile, with both
// lines. Whether stores that are written in two ways are one is known only once the configuration loads.
func (h *Handler) checkOthers(state map[string]any) error {
	for _, z := range h.Zones {
		id := "sliding_window zone " + z.Name + " " + string(h.StoreRaw)
		other, ok := state[id].(*Zone)
		if !ok {
			state[id] = z
			continue
		}
		if differ := differences(other.definition(false), z.definition(false)); differ != "" {
			return fmt.Errorf("zone %s: %w, at %s", z.Name, errDiffer(" the other one is at "+other.writtenAt+", and", differ), z.writtenAt)
		}
	}
	return nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	sliding_window [<matcher>] [<zone> <key> <limit> <window>] {
//		zone <name> {
//			match       { <matchers...> }
//			key         <text>
//			limit       <max> <window>
//			limit       <max> <window> tier <bits>/<bits>
//			fallback    <max> <window>
//			algorithm   zset|log
//			algorithm   slices {
//				count    <n>                # or one of the next three
//				size     <duration>
//				layers   <coarse> <fine>
//				adaptive <min> <max>
//				strict|weighted             # weighted: with count or size
//			}
//			algorithm   gcra {
//				burst    <n>
//				native   auto|on|off
//			}
//			algorithm   stream {
//				fields    <name> <value> ...
//				keep      <duration>
//				max_value <bytes>
//				max_entry <bytes>
//			}
//			pack        <expected keys>     # with gcra, or slices of a count of 3 at most
//			cost        <n>
//			ipv4_prefix <bits>
//			ipv6_prefix <bits>
//			fold_case
//			empty_key   shared|skip | deny [<status>]
//			lease       <units> [<ttl>]
//			concurrent  <max> {
//				fallback <max>              # with placeholders in max
//				lease    <duration>
//				hold     body|status
//			}
//			count_if    status <code|class>... | header <field> <value>
//			count_if    {
//				status <code|class>...
//				header <field> <value>
//			}
//			enforce     on|shadow|mark|<n>%
//			alert       {
//				denied <n>%
//				over   <duration>
//				min    <requests>
//			}
//			top_talkers
//			ban         <length> {
//				after  <denials> in <duration>
//				factor <n>
//				max    <duration>
//				halve  <duration>
//				spread <n>%
//				status <code>
//				silent
//				except { <matchers...> }
//			}
//			settle      {
//				usage        openai|anthropic     # or header, or json
//				header       <name> [strip]
//				json         <path>
//				weight       input <units> cached <units> output <units>
//				reserve_json <fields...>
//				reserve_body <bytes>
//				reserve_max <units>
//				on_missing   keep|refund|<units>
//				on_abort     keep|refund|<units>
//				refund_if    status <code|class>... | header <field> <value>
//				max          <units>
//			}
//			load        {
//				cpu      <lo>% <hi>%             # or memory, or latency
//				memory   <lo>% <hi>%
//				latency  <lo> <hi>
//				floor    <n>%
//				ceiling  <n>%
//				recover  <duration>
//			}
//		}
//		store    <name> ...
//		on_error local|allow|deny {
//			share                       # with local
//		}
//		status   <code>
//		headers  ietf|legacy|both|none
//		errors   problem|openai|anthropic
//		jitter   <share>
//		log_key
//	}
//
// Zones and limits repeat; everything else is given once. A zone has a limit, or concurrent. A zone on the line of the
// directive comes before those in the block.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return inShort(h.unmarshal(d))
}

func (h *Handler) unmarshal(d *caddyfile.Dispenser) error {
	d.Next() // consume directive name
	if args := d.RemainingArgs(); len(args) > 0 {
		if one, ok := quantity.InOneWord(args[len(args)-1]); ok && len(args) == 3 {
			args = append(args[:2:2], one.Max, one.Window)
		}
		if len(args) != 4 {
			if meant, ok := quantity.MeantDirective(args); ok {
				return d.Errf("wrong arguments: write %s", meant)
			}
			hint := ""
			switch {
			case len(args) == 1 && d.NextBlock(0):
				hint = ": sliding_window { zone " + args[0] + " { ... } }"
			case len(args) < 4:
				hint = "; is a {$VARIABLE} empty?"
			}
			return d.Errf("wrong number of arguments: write sliding_window <zone> <key> <limit> <window>, or zones in a block%s", hint)
		}
		h.Zones = append(h.Zones, &Zone{
			Name: args[0], Key: args[1],
			Limits:    []Limit{{Max: Value(args[2]), Window: Value(args[3])}},
			writtenAt: place(d),
		})
		if err := h.check(); err != nil {
			meant, ok := quantity.MeantDirective(args)
			if ok && meant != "sliding_window "+strings.Join(args, " ") && h.Zones[0].checkUpTo("limit") != nil {
				return d.Errf("wrong arguments: write %s", meant)
			}
			return d.WrapErr(err)
		}
		if err := checkWrittenKey(args[1]); err != nil {
			return d.WrapErr(fmt.Errorf("zone %s: %w", args[0], err))
		}
	}
	seen := make(suggest.Seen)
	for d.NextBlock(0) {
		if d.Val() != "zone" {
			if err := seen.Once(d); err != nil {
				return err
			}
		}
		if err := h.unmarshalOption(d); err != nil {
			return err
		}
	}
	if err := h.check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (h *Handler) unmarshalOption(d *caddyfile.Dispenser) error {
	var err error
	switch d.Val() {
	case "zone":
		z := new(Zone)
		if err := z.unmarshal(d); err != nil {
			return err
		}
		h.Zones = append(h.Zones, z)
	case "store":
		h.StoreRaw, err = parseStore(d)
	case "on_error":
		err = parseOnError(d, &h.OnError, &h.Share)
	case "headers":
		err = parseWord(d, "headers", &h.Headers, fieldsIETF, fieldsLegacy, fieldsBoth, fieldsNone)
	case "errors":
		err = parseWord(d, "errors", &h.Errors, errorsProblem, errorsOpenAI, errorsAnthropic)
	case "status":
		if err = parseInt(d, "status", &h.Status); err == nil && h.Status == 0 {
			return d.Err("status 0: must be from 400 to 599")
		}
		if err == nil {
			err = wrap(d, checkStatus(h.Status))
		}
	case "jitter":
		var value string
		if !d.AllArgs(&value) {
			return suggest.ArgErr(d)
		}
		if h.Jitter, err = strconv.ParseFloat(value, 64); err != nil {
			if percent, err := quantity.Percent(value); err == nil {
				return d.Errf("jitter %q is not a number; write %v", value, percent)
			}
			return d.Errf("jitter %q is not a number", value)
		}
		err = wrap(d, checkJitter(h.Jitter))
	case "log_key":
		if d.NextArg() {
			return suggest.ArgErr(d)
		}
		h.LogKey = true
	default:
		return known().Unknown(d, suggest.InHandler)
	}
	return err
}

// unmarshal reads a zone. What is wrong with a line is reported at that line.
func (z *Zone) unmarshal(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&z.Name) {
		return suggest.ArgErr(d)
	}
	if err := checkZoneName(z.Name); err != nil {
		return d.WrapErr(err)
	}
	z.writtenAt = place(d)
	seen := make(suggest.Seen)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var err error
		if d.Val() != "limit" {
			err = seen.Once(d)
		}
		if err == nil {
			err = refuseEmpty(d, z.readOption)
		}
		if err != nil {
			return fmt.Errorf("zone %s: %w", z.Name, err)
		}
	}
	if z.Fallback == nil && z.errNoFallback != nil {
		return fmt.Errorf("zone %s: %w", z.Name, z.errNoFallback)
	}
	if err := z.checkUpTo("ipv6_prefix"); err != nil && z.tierAt != "" {
		return fmt.Errorf("zone %s: %w, at %s", z.Name, err, z.tierAt)
	}
	if err := z.checkUpTo("concurrent"); err != nil && z.concurrentAt != "" {
		return fmt.Errorf("zone %s: %w, at %s", z.Name, err, z.concurrentAt)
	}
	return wrap(d, z.check())
}

// parseStore reads the name of a store and what belongs to it.
func parseStore(d *caddyfile.Dispenser) (json.RawMessage, error) {
	if !d.NextArg() {
		return nil, suggest.ArgErr(d)
	}
	name := d.Val()
	if err := suggest.CheckStoreName(name); err != nil {
		return nil, d.WrapErr(err)
	}
	module, err := caddyfile.UnmarshalModule(d, suggest.StoreModules+"."+name)
	if err != nil {
		return nil, err
	}
	return caddyconfig.JSONModuleObject(module, "module", name, nil), nil
}

// parseOnError reads what to do while the store is away.
func parseOnError(d *caddyfile.Dispenser, word *control.OnError, share *bool) error {
	if err := parseWord(d, "on_error", word, control.OnErrors...); err != nil {
		return err
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch {
		case d.Val() != "share":
			return suggest.NoOption(d, " of on_error", []string{"share"})
		case *share:
			return d.Err("share is given twice; keep one")
		case d.NextArg():
			return suggest.ArgErr(d)
		}
		*share = true
		if err := checkShare(*word, *share); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddy.Module          = (*Handler)(nil)
)

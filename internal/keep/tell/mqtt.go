//go:build !router

package tell

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"unbloat/internal/keep/config"
)

// Topics of a broker. Home Assistant finds the lines by what is kept under discovery.
const (
	root      = "unbloat/"
	discovery = "homeassistant/"
	available = root + "available" // online or offline
	online    = "online"
	offline   = "offline"
	switchOn  = "ON"
	switchOff = "OFF"
)

// Times of a broker.
const (
	stateEvery = 10 * time.Second
	keepAlive  = 30 // seconds
)

// MQTT keeps a connection to a broker until ctx ends: it shows the lines to Home Assistant,
// takes its switch, and returns what publishes a message.
func MQTT(ctx context.Context, to config.Notify, secret func() (string, error), h House, log func(string, ...any)) (func(context.Context, Message) error, error) {
	u, err := url.Parse(to.URL)
	if err != nil {
		return nil, errors.New("its url is none")
	}
	user := u.User.Username()
	u.User = nil
	if u.Port() == "" {
		u.Host += map[string]string{"mqtt": ":1883", "mqtts": ":8883"}[u.Scheme]
	}
	said := ""
	c := autopaho.ClientConfig{
		ServerUrls: []*url.URL{u}, KeepAlive: keepAlive, CleanStartOnInitialConnection: true, ConnectTimeout: sendTime,
		ReconnectBackoff: func(n int) time.Duration { return min(firstAgain<<min(n, 6), mostAgain) },
		WillMessage:      &paho.WillMessage{Topic: available, Payload: []byte(offline), QoS: 1, Retain: true},
		ConnectPacketBuilder: func(p *paho.Connect, _ *url.URL) (*paho.Connect, error) {
			text, err := secret()
			p.Username, p.UsernameFlag = user, user != ""
			p.Password, p.PasswordFlag = []byte(text), text != ""
			return p, err
		},
		OnConnectionUp: func(m *autopaho.ConnectionManager, _ *paho.Connack) {
			said = ""
			go func() { // it must not block
				_, _ = m.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: root + "+/shaping/set", QoS: 1}}})
				announce(ctx, m, h)
			}()
		},
		OnConnectError: func(err error) {
			if text := err.Error(); text != said && log != nil {
				said = text
				log("tell mqtt (%s): it can't be reached, and is tried again", u.Host)
			}
		},
	}
	// The broker says for us that nobody shows the lines any more.
	const withWill = 0x04
	c.DisconnectPacketBuilder = func() *paho.Disconnect { return &paho.Disconnect{ReasonCode: withWill} }
	c.ClientConfig = paho.ClientConfig{ClientID: "", OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
		// The shaping of a line, on or off. It takes a while, and must not block.
		for _, l := range h.Lines() {
			if command := string(p.Packet.Payload); p.Packet.Topic == root+idOf(l.Key)+"/shaping/set" && (command == switchOn || command == switchOff) && !p.Packet.Retain {
				go func() {
					if err := h.Switch(ctx, l.Key, command == switchOn); err != nil && log != nil {
						log("mqtt: %v", err)
					}
				}()
			}
		}
		return true, nil
	}}}
	m, err := autopaho.NewConnection(ctx, c)
	if err != nil {
		return nil, err
	}
	go func() {
		tick := time.NewTicker(stateEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				states(ctx, m, h)
			}
		}
	}()
	return func(ctx context.Context, x Message) error {
		_, err := m.Publish(ctx, &paho.Publish{Topic: root + idOf(x.Line) + "/incident", QoS: 1, Payload: []byte(x.Body)})
		return err
	}, nil
}

var notID = regexp.MustCompile(`[^A-Za-z0-9]+`)

// idOf is a line's name in topics and in Home Assistant.
func idOf(key string) string { return notID.ReplaceAllString(key, "_") }

// keep publishes what a broker keeps for those who come later.
func keep(ctx context.Context, m *autopaho.ConnectionManager, topic string, v any) {
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return // they are finite
		}
		text = string(b)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	_, _ = m.Publish(ctx, &paho.Publish{Topic: topic, QoS: 1, Retain: true, Payload: []byte(text)}) // the next follows soon
}

func states(ctx context.Context, m *autopaho.ConnectionManager, h House) {
	for _, l := range h.Lines() {
		keep(ctx, m, root+idOf(l.Key)+"/state", l)
	}
}

// announce tells Home Assistant what there is, and that it is there.
func announce(ctx context.Context, m *autopaho.ConnectionManager, h House) {
	for _, l := range h.Lines() {
		id := idOf(l.Key)
		for _, s := range []struct{ kind, name, value, unit, class string }{
			{"sensor", "Download", "down_bps", "bit/s", "data_rate"}, {"sensor", "Upload", "up_bps", "bit/s", "data_rate"},
			{"sensor", "Download limit", "limit_down_bps", "bit/s", "data_rate"}, {"sensor", "Upload limit", "limit_up_bps", "bit/s", "data_rate"},
			{"sensor", "Added delay", "delay_ms", "ms", "duration"}, {"sensor", "Grade", "grade", "", ""}, {"sensor", "Incident", "incident", "", ""},
			{"switch", "Shaping", "shaping", "", ""},
		} {
			value := "value_json." + s.value
			switch s.value { // Home Assistant shows None as not known
			case "delay_ms":
				value += " if " + value + " >= 0 else None"
			case "grade":
				value += " or None"
			}
			d := map[string]any{
				"name": s.name, "unique_id": "unbloat_" + id + "_" + s.value, "state_topic": root + id + "/state", "value_template": "{{ " + value + " }}", "availability_topic": available,
				"device": map[string]any{"identifiers": []string{"unbloat_" + id}, "name": "Line " + l.Name, "manufacturer": "unbloat"},
			}
			if s.unit != "" {
				d["unit_of_measurement"], d["device_class"], d["state_class"] = s.unit, s.class, "measurement"
			}
			if s.kind == "switch" {
				d["command_topic"], d["payload_on"], d["payload_off"] = root+id+"/shaping/set", switchOn, switchOff
			}
			keep(ctx, m, discovery+s.kind+"/unbloat_"+id+"_"+s.value+"/config", d)
		}
	}
	keep(ctx, m, available, online)
	states(ctx, m, h)
}

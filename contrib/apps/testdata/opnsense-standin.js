// Stands in for what OPNsense gives its pages besides jQuery and Bootstrap: grids,
// forms, the button that applies, messages. Written for the tests; the API is the
// test's server.
(function () {
  const post = (url, data) => $.ajax({ url, type: "POST", contentType: "application/json", data: JSON.stringify(data || {}), dataType: "json" });
  window.ajaxCall = (url, data, done) => post(url, data).always((a, status) => done(status === "success" ? a : {}, status));
  window.ajaxGet = (url, data, done) => $.ajax({ url, data, dataType: "json" }).always((a, status) => done(status === "success" ? a : {}, status));

  const field = (id) => $(document.getElementById(id));
  function fill(data, prefix) {
    for (const [key, value] of Object.entries(data)) {
      const id = prefix ? `${prefix}.${key}` : key;
      const at = field(id);
      if (!at.length) {
        if (value && typeof value === "object") fill(value, id);
      } else if (at.is(":checkbox")) {
        at.prop("checked", value === "1");
      } else if (at.is("select")) {
        at.empty();
        for (const [name, o] of Object.entries(value || {})) at.append($("<option/>").val(name).text(o.value).prop("selected", o.selected === 1));
      } else {
        at.val(value);
      }
    }
  }
  function collect(form) {
    const out = {};
    $(form).find("[data-field]").each(function () {
      const words = this.id.split("."), last = words.pop();
      let at = out;
      for (const w of words) at = at[w] = at[w] || {};
      at[last] = $(this).is(":checkbox") ? (this.checked ? "1" : "0") : [].concat($(this).val() || []).join(",");
    });
    return out;
  }
  window.mapDataToFormUI = (forms) => $.when(...Object.values(forms).map((url) => $.getJSON(url).then((data) => fill(data, ""))));
  window.saveFormToEndpoint = (url, form, done, _disable, failed) => post(url, collect(document.getElementById(form))).then((a) => (a.result === "saved" ? done(a) : failed && failed(a)), () => failed && failed({}));
  window.formatTokenizersUI = () => {};
  window.updateServiceControlUI = () => {};
  $.fn.selectpicker = function () { return this; };
  window.BootstrapDialog = {
    TYPE_DANGER: "danger",
    show: (o) => $("#messages").append($('<div class="alert" role="alert"/>').addClass("alert-" + o.type).append($("<strong/>").text(o.title + ": "), o.message)),
  };

  $.fn.SimpleActionButton = function (o) {
    return this.each(function () {
      const button = $(this).text($(this).data("label"));
      button.on("click", () => $.when(o.onPreAction ? o.onPreAction() : null).then(() => post(button.data("endpoint")).always((a, status) => {
        $("#unbloatChangeMessage").hide();
        if (status !== "success" || a.status !== "ok") BootstrapDialog.show({ type: "danger", title: button.data("error-title"), message: $("<span/>").text(a.status || status) });
        o.onAction && o.onAction(a, status);
      })));
    });
  };

  $.fn.UIBootgrid = function (o) {
    return this.each(function () {
      const table = $(this), dialog = $("#" + table.data("editdialog")), columns = table.find("th").toArray();
      table.removeClass("table-responsive").wrap('<div class="table-responsive"/>'); // a grid scrolls by itself
      columns.forEach((th) => $(th).toggle($(th).data("visible") !== false));
      const save = dialog.find("[id$=_save]");
      const edit = (uuid) => $.getJSON(o.get + (uuid || "")).then((data) => {
        fill(data, "");
        dialog.modal("show");
        save.off("click").on("click", () => post(uuid ? o.set + uuid : o.add, collect(dialog)).then((a) => {
          if (a.result !== "saved") return;
          dialog.modal("hide");
          $("#" + table.data("editalert")).show();
          load();
        }));
      });
      const button = (name, icon, act) => $('<button type="button" class="btn btn-xs btn-default"/>').attr({ title: name, "aria-label": name }).text(icon).on("click", act);
      const formats = {
        rowtoggle: (row) => $('<input type="checkbox"/>').attr("aria-label", "enabled").prop("checked", row.enabled === "1").on("click", () => post(o.toggle + row.uuid).then(load)),
        boolean: (row, id) => $("<span/>").text(row[id] === "1" ? "✓" : "✗"),
        commands: (row) => $("<span/>").append(button("Edit", "✎", () => edit(row.uuid)), " ", button("Delete", "×", () => post(o.del + row.uuid).then(load))),
      };
      function load() {
        post(o.search, { current: 1, rowCount: 50 }).then((a) => table.children("tbody").empty().append(a.rows.map((row) => $("<tr/>").append(columns.map((th) => {
          const id = $(th).data("column-id"), format = formats[$(th).data("formatter")];
          return $("<td/>").toggle($(th).data("visible") !== false).append(format ? format(row, id) : $("<span/>").text(row[id] || ""));
        })))));
      }
      table.find("[data-action=add]").on("click", () => edit(""));
      load();
    });
  };
})();

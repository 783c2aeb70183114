<?php

// SPDX-License-Identifier: Apache-2.0

class Lines extends ClearOS_Controller
{
    function index()
    {
        $this->_load();
        try {
            $data['lines'] = $this->unbloat->get_lines();
            $data['status'] = $this->unbloat->get_status_of_lines();
            $data['on'] = $this->unbloat->get_engine_state();
            $data['interfaces'] = $this->iface_manager->get_external_interfaces();
        } catch (Exception $e) {
            $this->page->view_exception($e);
            return;
        }
        $this->page->view_form('unbloat/lines', $data, lang('unbloat_lines'));
    }

    function edit($interface)
    {
        $this->_load();
        $this->form_validation->set_policy('down', 'unbloat/Unbloat', 'validate_speed', TRUE);
        $this->form_validation->set_policy('up', 'unbloat/Unbloat', 'validate_speed', TRUE);
        if ($this->input->post('submit') && $this->form_validation->run()) {
            $this->_do(function ($unbloat, $input) use ($interface) {
                $unbloat->set_line($interface, $input->post('down'), $input->post('up'));
            });
            return;
        }
        try {
            $lines = $this->unbloat->get_lines();
        } catch (Exception $e) {
            $this->page->view_exception($e);
            return;
        }
        $data = isset($lines[$interface]) ? $lines[$interface] : array('down' => '', 'up' => '');
        $data['interface'] = $interface;
        $this->page->view_form('unbloat/line', $data, lang('unbloat_line'));
    }

    function delete($interface)
    {
        $this->_load();
        $this->page->view_confirm_delete('/app/unbloat/lines/destroy/' . $interface, '/app/unbloat', array($interface));
    }

    function destroy($interface)
    {
        $this->_load();
        $this->_do(function ($unbloat) use ($interface) {
            $unbloat->delete_line($interface);
        });
    }

    function enable()
    {
        $this->_load();
        $this->_do(function ($unbloat) {
            $unbloat->set_engine_state(TRUE);
        });
    }

    function disable()
    {
        $this->_load();
        $this->_do(function ($unbloat) {
            $unbloat->set_engine_state(FALSE);
        });
    }

    function _load()
    {
        $this->lang->load('unbloat');
        $this->load->library('unbloat/Unbloat');
        $this->load->library('network/Iface_Manager');
    }

    function _do($change)
    {
        try {
            $change($this->unbloat, $this->input);
            $this->page->set_status_updated();
            redirect('/unbloat');
        } catch (Exception $e) {
            $this->page->view_exception($e);
        }
    }
}
